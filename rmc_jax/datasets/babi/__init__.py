"""The builder of the bAbI question answering tasks."""
