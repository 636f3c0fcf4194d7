//! The page as a client sees it.

mod browser;
mod chromium;
mod http;
mod served;
mod size;
mod style;
