"""Files of a run made into tables and figures; never touches a model."""
