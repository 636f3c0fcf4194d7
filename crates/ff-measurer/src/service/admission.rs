//! The limits of a measurer's operator, and the part of them that is in use.
//!
//! A coordinator is trusted only within these limits: it cannot exceed the operator's bounds, and
//! it cannot make the host send to an address that is not public unless the operator allows it.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use ff_proto::addresses::is_public;
use ff_proto::units::BytesPerSec;

use crate::task::Task;

const DAY_SECS: u64 = 86_400;

/// The operator's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The highest rate of all measurements together; `None` for no limit.
    pub rate: Option<BytesPerSec>,
    /// The largest number of relays measured at once.
    pub relays_at_once: u16,
    /// The largest number of links of all measurements together.
    pub links: u32,
    /// The hours in which measurements may begin; `None` for any time.
    pub hours: Option<Hours>,
    /// Whether relays may have addresses that are not public.
    pub private_targets: bool,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { rate: None, relays_at_once: 16, links: 4096, hours: None, private_targets: false }
    }
}

/// Hours of each day, in UTC; may span midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// The first minute of the day that is within them.
    from: u16,
    /// The first minute that is not within them any more.
    until: u16,
}

impl Hours {
    /// Whether this time, in seconds since 1970, is within them.
    #[must_use]
    pub fn contain(self, unix_secs: u64) -> bool {
        let minute = unix_secs % DAY_SECS / 60;
        let (from, until) = (u64::from(self.from), u64::from(self.until));
        if from < until {
            (from..until).contains(&minute)
        } else {
            minute >= from || minute < until
        }
    }
}

impl std::fmt::Display for Hours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a range of hours: write it in UTC, such as 22:00-06:00");
        let minute = |part: &str| {
            let (hour, minute) = part.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60 || (hour, minute) == (24, 0)).then_some(hour * 60 + minute)
        };
        let (from, until) = text.split_once('-').ok_or_else(wrong)?;
        let (from, until) = minute(from).zip(minute(until)).ok_or_else(wrong)?;
        if from == until { Err(wrong()) } else { Ok(Self { from, until }) }
    }
}

/// Why a task is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The relay's address is not public.
    #[error(
        "{0} is not a public address; private_targets = true in this measurer's config allows it"
    )]
    PrivateTarget(IpAddr),
    /// The operator limits the rate, but the task has none.
    #[error("this measurer has a rate limit, so each measurement needs a rate")]
    NoRate,
    /// Its rate and those of running tasks exceed the limit.
    #[error("{asked} is more than this measurer has left: {taken} of {limit} are in use")]
    Rate {
        /// The task's rate.
        asked: BytesPerSec,
        /// The rates of running tasks.
        taken: BytesPerSec,
        /// The operator's limit.
        limit: BytesPerSec,
    },
    /// Its links and those of running tasks exceed the limit.
    #[error("{asked} links are more than this measurer has left: {taken} of {limit} are in use")]
    Links {
        /// The task's links.
        asked: u16,
        /// The links of running tasks.
        taken: u32,
        /// The operator's limit.
        limit: u32,
    },
    /// As many relays as the limit allows are being measured.
    #[error("this measurer already measures {0} relays, its limit")]
    Relays(u16),
    /// It is outside of the operator's hours.
    #[error("this measurer measures from {0} UTC only")]
    Hours(Hours),
    /// An exchange is running.
    #[error("this measurer is busy: it exchanges with other measurers")]
    Exchanging,
    /// Relays are being measured, so an exchange has to wait.
    #[error("this measurer is busy: {0} relays are being measured")]
    Measuring(u16),
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    rate: BytesPerSec,
    links: u32,
    relays: u16,
    /// Whether an exchange with other measurers is running. There is at most one, and none while a
    /// relay is measured: each would take capacity from the other.
    exchange: bool,
}

/// The limits and the part of them that is in use.
#[derive(Debug, Default)]
pub struct Admission {
    taken: Mutex<Taken>,
}

/// A task's part of the limits; returned when this is dropped.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    rate: BytesPerSec,
    links: u16,
}

/// The permission for an exchange with other measurers; returned when this is dropped.
#[derive(Debug)]
pub struct ExchangePermit(Arc<Admission>);

impl AdmissionLimits {
    /// Checks what does not depend on running tasks.
    fn check_time(&self, unix_secs: u64) -> Result<(), Refusal> {
        self.hours
            .filter(|hours| !hours.contain(unix_secs))
            .map_or(Ok(()), |hours| Err(Refusal::Hours(hours)))
    }

    /// Checks whether the operator allows sending to an address.
    ///
    /// # Errors
    /// [`Refusal::PrivateTarget`].
    pub fn check_target(&self, address: IpAddr) -> Result<(), Refusal> {
        if self.private_targets || is_public(address) {
            Ok(())
        } else {
            Err(Refusal::PrivateTarget(address))
        }
    }
}

impl Admission {
    /// Admits an exchange with other measurers at this rate, which excludes all other work.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing is reserved.
    pub fn admit_exchange(
        self: &Arc<Self>,
        rate: BytesPerSec,
        limits: &AdmissionLimits,
        unix_secs: u64,
    ) -> Result<ExchangePermit, Refusal> {
        limits.check_time(unix_secs)?;
        if let Some(limit) = limits.rate.filter(|limit| rate > *limit) {
            return Err(Refusal::Rate { asked: rate, taken: BytesPerSec::default(), limit });
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match (taken.exchange, taken.relays) {
            (true, _) => Err(Refusal::Exchanging),
            (false, 0) => {
                taken.exchange = true;
                Ok(ExchangePermit(self.clone()))
            }
            (false, relays) => Err(Refusal::Measuring(relays)),
        }
    }

    /// Reserves a task's part of the limits.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing is reserved.
    pub fn admit(
        self: &Arc<Self>,
        task: &Task,
        limits: &AdmissionLimits,
        unix_secs: u64,
    ) -> Result<Permit, Refusal> {
        limits.check_target(task.target.addr.ip())?;
        limits.check_time(unix_secs)?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.exchange {
            return Err(Refusal::Exchanging);
        }
        if taken.relays >= limits.relays_at_once {
            return Err(Refusal::Relays(taken.relays));
        }
        if taken.links + u32::from(task.sockets) > limits.links {
            let (asked, limit) = (task.sockets, limits.links);
            return Err(Refusal::Links { asked, taken: taken.links, limit });
        }
        if let Some(limit) = limits.rate {
            let asked = task.rate.ok_or(Refusal::NoRate)?;
            if taken.rate.get().saturating_add(asked.get()) > limit.get() {
                return Err(Refusal::Rate { asked, taken: taken.rate, limit });
            }
        }
        let rate = task.rate.unwrap_or_default();
        taken.rate = BytesPerSec::new(taken.rate.get().saturating_add(rate.get()));
        taken.links += u32::from(task.sockets);
        taken.relays += 1;
        Ok(Permit { admission: self.clone(), rate, links: task.sockets })
    }

    /// The number of relays being measured.
    #[must_use]
    pub fn relays(&self) -> u16 {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).relays
    }

    /// Whether an exchange with other measurers is running.
    #[must_use]
    pub fn is_exchanging(&self) -> bool {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).exchange
    }
}

impl Drop for ExchangePermit {
    fn drop(&mut self) {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).exchange = false;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.admission.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.rate = BytesPerSec::new(taken.rate.get().saturating_sub(self.rate.get()));
        taken.links = taken.links.saturating_sub(self.links.into());
        taken.relays = taken.relays.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use ff_proto::ids::{CryptoKind, MeasurementId};

    use super::*;
    use crate::link::TargetAddr;

    /// A task for a relay at this address with this many links and Mbit/s.
    fn task(address: &str, sockets: u16, mbit: Option<u64>) -> Task {
        let addr = SocketAddr::new(address.parse().expect("an address"), 9001);
        Task {
            measurement: MeasurementId([0; 16]),
            target: TargetAddr { addr, ed_identity: [0; 32].into() },
            sockets,
            rate: mbit.map(BytesPerSec::from_mbit),
            duration_secs: 30,
            cells_per_record: 6,
            crypto: CryptoKind::CGO_AES128,
            check_probability: 1.0,
            connect_timeout: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(1),
        }
    }

    #[test]
    fn relays_together_get_no_more_than_the_operator_allows() {
        let admission = Arc::new(Admission::default());
        let limits = AdmissionLimits {
            rate: Some(BytesPerSec::from_mbit(100)),
            relays_at_once: 2,
            links: 50,
            ..AdmissionLimits::default()
        };
        let admit = |sockets, mbit| admission.admit(&task("1.1.1.1", sockets, mbit), &limits, 0);
        assert_eq!(admit(20, None).expect_err("no rate"), Refusal::NoRate);
        let first = admit(20, Some(60)).expect("room");
        assert!(matches!(admit(20, Some(41)), Err(Refusal::Rate { .. })));
        assert!(matches!(admit(31, Some(1)), Err(Refusal::Links { .. })));
        let second = admit(30, Some(40)).expect("room");
        assert_eq!(admit(1, Some(1)).expect_err("two relays"), Refusal::Relays(2));
        drop(first);
        assert!(admit(20, Some(60)).is_ok(), "what is given back is there again");
        drop(second);
        assert_eq!(admission.relays(), 0);
        assert!(matches!(admit(20, Some(u64::MAX / 125_000)), Err(Refusal::Rate { .. })));
    }

    #[test]
    fn an_exchange_is_alone_and_within_the_operators_bounds() {
        let admission = Arc::new(Admission::default());
        let night = "22:00-06:00".parse().ok();
        let limits = AdmissionLimits {
            rate: Some(BytesPerSec::from_mbit(100)),
            hours: night,
            ..AdmissionLimits::default()
        };
        let ask = |mbit, at| admission.admit_exchange(BytesPerSec::from_mbit(mbit), &limits, at);
        assert!(matches!(ask(101, 0), Err(Refusal::Rate { .. })));
        assert!(matches!(ask(100, DAY_SECS / 2), Err(Refusal::Hours(_))));
        let relay = || admission.admit(&task("1.1.1.1", 1, Some(1)), &limits, 0);
        let measuring = relay().expect("room");
        assert_eq!(ask(100, 0).map(drop), Err(Refusal::Measuring(1)));
        drop(measuring);
        let exchange = ask(100, 0).expect("nothing else goes on");
        assert_eq!(ask(1, 0).map(drop), Err(Refusal::Exchanging));
        assert_eq!(relay().map(drop), Err(Refusal::Exchanging));
        drop(exchange);
        assert!(relay().is_ok() && !admission.is_exchanging(), "what is given back is there");
    }

    #[test]
    fn only_public_relays_are_measured_unless_the_operator_says_otherwise() {
        let admission = Arc::new(Admission::default());
        let public = ["1.1.1.1", "198.51.99.1", "2a00::1", "2001:470::1", "::ffff:1.1.1.1"];
        let special = [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "172.31.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2001::1",
        ];
        for (addresses, is_good) in [(&public[..], true), (&special[..], false)] {
            for address in addresses {
                let task = task(address, 1, None);
                let allows = |private_targets| AdmissionLimits {
                    private_targets,
                    ..AdmissionLimits::default()
                };
                let admitted = admission.admit(&task, &allows(false), 0).is_ok();
                assert_eq!(admitted, is_good, "{address}");
                assert!(admission.admit(&task, &allows(true), 0).is_ok(), "{address}");
            }
        }
    }

    #[test]
    fn hours_may_span_midnight() {
        let at = |hour: u64, minute: u64| 7 * DAY_SECS + hour * 3600 + minute * 60;
        let night: Hours = "22:00-06:30".parse().expect("hours");
        assert_eq!(night.to_string(), "22:00-06:30");
        for (hour, minute, is_in) in
            [(22, 0, true), (0, 0, true), (6, 29, true), (6, 30, false), (21, 59, false)]
        {
            assert_eq!(night.contain(at(hour, minute)), is_in, "{hour}:{minute}");
        }
        let day: Hours = "00:00-24:00".parse().expect("hours");
        assert!((0..24).all(|hour| day.contain(at(hour, 0))));
        for odd in
            ["", "22", "22:00", "22-06", "25:00-01:00", "24:01-01:00", "01:00-01:00", "1:60-2:00"]
        {
            assert!(odd.parse::<Hours>().is_err(), "{odd}");
        }
        let limits = AdmissionLimits { hours: Some(night), ..AdmissionLimits::default() };
        let admission = Arc::new(Admission::default());
        let refused = admission.admit(&task("1.1.1.1", 1, None), &limits, at(12, 0));
        assert_eq!(refused.expect_err("noon"), Refusal::Hours(night));
    }
}
