//! Clients, circuits and streams as flows through a network of relays (paper §7).
