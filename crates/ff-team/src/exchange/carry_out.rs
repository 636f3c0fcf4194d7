//! An exchange over gRPC: everybody is told to listen, then of the others, and then watched to the
//! end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ff_measurer::PartFailure;
use ff_measurer::exchange::{DEFAULT_PACKET_BYTES, ExchangeOrder};
use ff_measurer::service::client::{RemoteExchange, RemoteExchangeEvent};
use ff_measurer::service::wire::exchange::ExchangePart;
use ff_proto::units::BytesPerSec;
use futures::future::join_all;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{Found, Told, judge, pairs};
use crate::RemoteMeasurer;

/// How long an exchange may take beyond its seconds.
const GRACE: Duration = Duration::from_secs(20);

/// A measurer that is to be measured.
#[derive(Clone)]
pub struct Partner {
    /// The connection to the measurer.
    pub remote: RemoteMeasurer,
    /// The configured capacity of its network.
    pub stated: BytesPerSec,
}

/// A measurer that listens for the others.
struct Listening {
    /// The stream of the exchange.
    remote: RemoteExchange,
    /// Where the others reach it.
    addr: SocketAddr,
    /// The most that it may send.
    rate: BytesPerSec,
}

/// Has measurers exchange with each other for `secs` seconds. Returns the result of each, in their
/// order.
///
/// It ends by itself, whatever they do, and when it is dropped.
pub async fn exchange(partners: &[Partner], secs: u16) -> Vec<Found> {
    if partners.len() < 2 {
        let alone =
            "it is the only measurer, and an exchange needs two: its configured capacity is used";
        return partners.iter().map(|_| Err(alone.to_owned())).collect();
    }
    let asked = join_all(partners.iter().map(|partner| listen(partner, secs))).await;
    let hosts: Vec<_> =
        asked.iter().map(|host| host.as_ref().ok().map(|host| (host.addr, host.rate))).collect();
    let pairs = pairs(&hosts);
    let (session, key) = (rand::random(), Zeroizing::new(rand::random::<[u8; 32]>()));
    let leads = asked.iter().flatten().map(|host| host.remote.begin_lead());
    let at = Instant::now() + leads.max().unwrap_or_default();
    let parts = (0_u8..=u8::MAX).zip(asked).zip(&pairs).map(|((index, host), peers)| {
        let (key, duration) = (key.clone(), Duration::from_secs(secs.into()));
        async move {
            let host = host?;
            if peers.is_empty() {
                return Err(
                    "no other measurer has an address of the same family (IPv4 or IPv6)".to_owned()
                );
            }
            let (peers, rate) = (peers.clone(), host.rate);
            let start_in = Duration::ZERO;
            let order = ExchangeOrder { session, key, index, peers, rate, duration, start_in };
            let carried = carry_out(host.remote, &order, at);
            let told = timeout(duration + GRACE, carried).await;
            told.map_err(|_| "it took too long".to_owned())?.map_err(|error| error.to_string())
        }
    });
    let told = join_all(parts).await;
    judge(&pairs, told, secs)
}

/// Has a measurer listen.
async fn listen(partner: &Partner, secs: u16) -> Result<Listening, String> {
    let text = |failure: PartFailure| failure.to_string();
    let capability = partner.remote.describe().await.map_err(text)?;
    let limit = Some(capability.rate_bytes_per_sec).filter(|&limit| limit > 0);
    let rate = limit.map_or(partner.stated, |limit| partner.stated.min(BytesPerSec::new(limit)));
    let part = ExchangePart { rate, duration_secs: secs, packet_bytes: DEFAULT_PACKET_BYTES };
    let remote = partner.remote.client().exchange(part).await.map_err(text)?;
    let ip = partner.remote.client().reached_at().ok_or("its address is not known")?;
    let addr = SocketAddr::new(ip, remote.port());
    Ok(Listening { remote, addr, rate })
}

/// Begins, and gathers what it tells.
async fn carry_out(
    mut remote: RemoteExchange,
    order: &ExchangeOrder,
    at: Instant,
) -> Result<Told, PartFailure> {
    remote.begin(order, at)?;
    let mut seconds = Vec::new();
    loop {
        match remote.next_event().await? {
            RemoteExchangeEvent::Second(second) => seconds.push(second),
            RemoteExchangeEvent::Done(totals) => return Ok(Told { seconds, totals }),
        }
    }
}
