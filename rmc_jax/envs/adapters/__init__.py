"""The environments under the interfaces of other libraries."""
