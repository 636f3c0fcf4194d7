//! Archives and folders of documents.
