//! The page as a client sees it.

mod http;
pub(in crate::watch) mod made_up;
