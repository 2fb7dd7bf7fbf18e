"""Language modelling: Santoro et al. 2018, section 5.4, tables 2 and 3."""
