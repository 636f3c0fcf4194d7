//! Cells in transit through the relay: what it forwards, at less cost for the others than
//! downloads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ff_measurer::START_LEAD;
use ff_measurer::transit::{Transit, TransitEvent, TransitOrder};
use ff_proto::units::Cells;

use crate::case::{Case, Transits};
use crate::lab::OTHER_CORE;
use crate::observed::Observed;
use crate::relay::Relay;
use crate::sample::{Measured, as_f64, median};

/// Has the relay forward them over our links.
pub(crate) fn forward(case: &Case, observed: &Observed<'_>, links: u16) -> Result<Measured> {
    let order = order(case, observed.relay, links)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut transit = Transit::prepare(&order).await?;
        // All handshakes are done: the quota would only make them longer.
        observed.limit(true)?;
        transit.start(Instant::now() + START_LEAD);
        let (mut from, mut rates, mut cpu_micros) = (None, Vec::new(), 0);
        loop {
            match transit.next_event().await? {
                TransitEvent::Second(second) if second.second + 1 < case.warm_up_secs => {}
                TransitEvent::Second(second) if second.second + 1 == case.warm_up_secs => {
                    from = Some(observed.meter()?);
                }
                TransitEvent::Second(second) => {
                    cpu_micros += second.cpu_micros;
                    let cells = Cells(second.forward_cells + second.backward_cells);
                    rates.push(as_f64(cells.bytes()));
                    if rates.len() == usize::from(case.secs) {
                        return Ok(Measured {
                            rate: median(rates).context("there were no seconds")?,
                            from: from.context("there was no warm-up")?,
                            to: observed.meter()?,
                            measurers_cpu: Duration::from_micros(cpu_micros),
                        });
                    }
                }
                TransitEvent::Done(_) => anyhow::bail!("cells in transit ended early"),
            }
        }
    })
}

/// What to send, and where.
fn order(case: &Case, relay: Relay<'_>, links: u16) -> Result<TransitOrder> {
    let Transits { circuits, busy, quiet_one_in, sinks, direction, crypto } = case.transits;
    let sinks = vec![(relay.sink(), 0).into(); sinks.into()];
    Ok(TransitOrder {
        crypto,
        links,
        circuits: circuits.max(links.into()),
        busy_circuits: busy.max(links.into()),
        quiet_one_in,
        direction,
        duration: Duration::from_secs((case.warm_up_secs + case.secs).into()),
        cells_per_record: case.cells_per_record,
        cores: [vec![OTHER_CORE], vec![OTHER_CORE]],
        ..TransitOrder::new(relay.target(), relay.onion_key()?, sinks)
    })
}
