//! The paper's experiments: limits, client relays, and more clients.

/// The number of clients that run a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runners {
    /// No clients.
    None,
    /// Twenty: 18 web users and 2 bulk users.
    Low,
    /// Forty: 36 web users and 4 bulk users.
    High,
}

impl Runners {
    /// The numbers of web and bulk users with a relay, of all 900.
    #[must_use]
    pub const fn counts(self) -> [u32; 2] {
        match self {
            Self::None => [0, 0],
            Self::Low => [18, 2],
            Self::High => [36, 4],
        }
    }
}

/// An experiment: a cell of the paper's comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The limit in KB/s, if there is one.
    pub limit_kb: Option<u32>,
    /// The number of clients that run a relay.
    pub runners: Runners,
    /// Whether only every second relay limits clients.
    pub is_half: bool,
    /// Whether there are a fifth more clients.
    pub has_more: bool,
    /// The number of links, to different relays, over which each bulk user downloads.
    pub links: u8,
}

impl Cell {
    /// The network without a limit and without client relays.
    pub const BASE: Self =
        Self { limit_kb: None, runners: Runners::None, is_half: false, has_more: false, links: 1 };

    /// A readable name.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = self.limit_kb.map_or("no limit".to_owned(), |limit| format!("{limit} KB/s"));
        if self.is_half {
            name.push_str(" at half of the relays");
        }
        let runners: u32 = self.runners.counts().iter().sum();
        if runners > 0 {
            name.push_str(&format!(", {runners} client relays"));
        }
        if self.has_more {
            name.push_str(", 20 % more clients");
        }
        if self.links > 1 {
            name.push_str(&format!(", bulk over {} links", self.links));
        }
        name
    }
}

/// Settings that are the same for all experiments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TortoiseSetting {
    /// The size of the network, as a part of the paper's.
    pub scale: f64,
    /// The size of buckets, in seconds of the limit.
    pub burst_secs: f64,
    /// Simulated seconds before the measured time.
    pub warm_up_secs: u32,
    /// Simulated seconds of the measured time.
    pub secs: u32,
}

impl TortoiseSetting {
    /// `all * times` at this scale: at least 1, unless `all` is 0.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are below a million"
    )]
    pub fn count(&self, all: u32, times: f64) -> u32 {
        let scaled = (f64::from(all) * times * self.scale).round() as u32;
        if all == 0 { 0 } else { scaled.max(1) }
    }
}
