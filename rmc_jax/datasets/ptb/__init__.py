"""Penn Treebank, the words of its Wall Street Journal part."""
