//! Archives and folders of documents.

mod split;

pub use self::split::{Documents, Part, documents};
