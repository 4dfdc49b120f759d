"""The job's model and data: files, sizes, storage, loading speed."""
