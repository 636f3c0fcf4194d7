//! Other systems that measure relays: TorFlow, sbws, EigenSpeed, PeerFlow (paper §2, §8, Table 2).
