//! Tables of a value for each relay and time.
