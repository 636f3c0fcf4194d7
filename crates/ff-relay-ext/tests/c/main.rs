//! The interface for C.

mod c_interface;
mod header;
