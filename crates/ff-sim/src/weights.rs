//! A consensus' bandwidth-weights (dir-spec 3.8.3).
