//! How fast the hot paths are. `cargo bench` measures; `cargo bench -- --test` runs each once.

mod aggregate;
mod codec;
mod content;
mod echo;
mod loopback;
mod record_layer;
mod schedule;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    // With these times the whole takes two minutes; the results hold still with them.
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    codec::bench(&mut criterion);
    content::bench(&mut criterion);
    aggregate::bench(&mut criterion);
    echo::bench(&mut criterion);
    schedule::bench(&mut criterion);
    criterion.final_summary();
}
