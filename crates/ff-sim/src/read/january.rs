//! The relays of January 2019 and the hours in which they were listed.
