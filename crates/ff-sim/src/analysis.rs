//! Errors of capacities and weights over time (paper §3, Eq. 1-7).
