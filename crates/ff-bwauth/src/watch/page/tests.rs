//! The page as a client sees it.

mod browser;
mod chromium;
mod http;
pub(in crate::watch) mod made_up;
mod size;
mod style;
