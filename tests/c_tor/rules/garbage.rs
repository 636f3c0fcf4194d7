//! Cells that nobody should send, and peers that vanish: the relay carries on.

use std::time::Duration;

use ff_proto::cell::{
    BODY_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_DESTROY, CMD_MEAS_ECHO, CMD_MEASUREMENT,
    CMD_PADDING, Cell, fixed_cell,
};
use ff_proto::session::measurer::MEASUREMENT_CIRC_ID;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::timeout;

use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, codes_until_closed, next_cell, open, send,
};
use super::{LAB, Relay};

/// Commands that tor-spec has for circuits.
const CMD_CREATE: u8 = 1;
const CMD_RELAY: u8 = 3;
const CMD_RELAY_EARLY: u8 = 9;
const CMD_CREATE2: u8 = 10;
/// A command that nobody knows.
const CMD_UNKNOWN: u8 = 82;

/// The fate of a link.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The link still echoes.
    Echoes,
    /// The relay closes it.
    Closes,
}

/// A cell with a random body.
fn noise(circ_id: u32, command: u8) -> Cell {
    fixed_cell(circ_id, command, &rand::random::<[u8; BODY_LEN]>()).expect("a body's length")
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn cells_that_do_not_belong_on_a_measurement_link_end_at_most_that_link() {
    LAB.run(async |lab| {
        let relay = lab.relay("garbage");
        let (target, team) = (relay.target(), [Member::new(2)]);
        let (ours, other) = (MEASUREMENT_CIRC_ID, MEASUREMENT_CIRC_ID + 1);
        for (cell, fate) in [
            (noise(ours, CMD_RELAY), Fate::Closes),
            (noise(ours, CMD_RELAY_EARLY), Fate::Closes),
            (noise(ours, CMD_DESTROY), Fate::Closes),
            (noise(ours, CMD_CREATE), Fate::Closes),
            (noise(ours, CMD_CREATE2), Fate::Closes),
            (noise(ours, CMD_CREATE_FAST), Fate::Closes),
            (noise(ours, CMD_CREATED_FAST), Fate::Closes),
            (noise(ours, CMD_PADDING), Fate::Echoes),
            (noise(ours, CMD_UNKNOWN), Fate::Closes),
            (noise(other, CMD_UNKNOWN), Fate::Closes),
            (noise(other, CMD_RELAY), Fate::Closes),
            (noise(other, CMD_DESTROY), Fate::Closes),
            (noise(other, CMD_CREATE2), Fate::Closes),
            (noise(other, CMD_MEAS_ECHO), Fate::Closes),
            (noise(0, CMD_MEAS_ECHO), Fate::Closes),
            (noise(ours, CMD_MEASUREMENT), Fate::Closes),
        ] {
            let key = relay.key();
            let (coordinator, _) = Coordinator::granted(&target, key, LONGEST_SECS, &team).await;
            let open = || MeasurementLink::open(&target, coordinator.measurement, &team[0].key);
            let (mut bystander, mut link) = (open().await, open().await);
            bystander.echo(10).await;
            link.echo(10).await;
            send(&mut link.link, &[cell]).await;
            assert_eq!(fate_of(&mut link).await, fate, "after command {}", cell[4]);
            bystander.echo(10).await;
            coordinator.end().await;
        }
        relay.assert_in_order().await;
    });
}

/// Sends echo cells and returns the fate of the link.
async fn fate_of(link: &mut MeasurementLink) -> Fate {
    let cells = link.cells(20);
    // The relay may have closed the link already.
    let _ = link.link.send_cells(cells.as_flattened()).await;
    let mut echoed = 0;
    while echoed < cells.len() {
        let Some(cell) = next_cell(&mut link.link).await else { return Fate::Closes };
        if cell.command == CMD_MEAS_ECHO {
            link.state.handle(cell.as_cell()).expect("the right echo");
            echoed += 1;
        }
    }
    Fate::Echoes
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn echo_cells_outside_of_measurements_only_end_their_link() {
    LAB.run(async |lab| {
        let relay = lab.relay("garbage");
        let target = relay.target();
        let echo = noise(MEASUREMENT_CIRC_ID, CMD_MEAS_ECHO);
        // Nothing is granted.
        let mut link = open(&target).await;
        send(&mut link, &[echo]).await;
        assert_eq!(codes_until_closed(&mut link).await, []);
        // Something is, but not on this link; and then on the coordinator's.
        let team = [Member::new(1)];
        let (mut coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
        let mut link = open(&target).await;
        send(&mut link, &[echo]).await;
        assert_eq!(codes_until_closed(&mut link).await, []);
        send(&mut coordinator.link, &[echo]).await;
        codes_until_closed(&mut coordinator.link).await;
        relay.assert_in_order().await;
    });
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn random_cells_leave_the_relay_in_order() {
    LAB.run(async |lab| {
        let relay = lab.relay("garbage");
        let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(rand::random);
        println!("FF_TEST_SEED={seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (target, team) = (relay.target(), [Member::new(5)]);
        for _ in 0..8 {
            let key = relay.key();
            let mut coordinator =
                Coordinator::granted_when_free(&target, key, LONGEST_SECS, &team).await;
            for _ in 0..team[0].sockets {
                let mut link =
                    MeasurementLink::open(&target, coordinator.measurement, &team[0].key).await;
                link.echo(2).await;
                // Links of nobody in particular get them as well.
                for link in [&mut link.link, &mut open(&target).await] {
                    let _ = link.send_cells(random_cells(&mut rng).as_flattened()).await;
                    drain(link).await;
                }
            }
            let _ = coordinator.link.send_cells(random_cells(&mut rng).as_flattened()).await;
        }
        relay.assert_in_order().await;
    });
}

/// Some cells of commands that mean something, or nothing, to tor.
fn random_cells(rng: &mut StdRng) -> Vec<Cell> {
    let make = |_| {
        let mut cell = noise(0, 0);
        rng.fill_bytes(&mut cell);
        if rng.random_bool(0.7) {
            cell[..4].copy_from_slice(&MEASUREMENT_CIRC_ID.to_be_bytes());
        }
        // Commands from 128 have a length of their own, which divides the following cells
        // differently.
        let commands = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 80, 81, 82, 128, 130, 131];
        cell[4] = commands[rng.random_range(0..commands.len())];
        if cell[4] == CMD_MEASUREMENT {
            // A version and a command that exist, and a length that may fit.
            cell[5..8].copy_from_slice(&[1, rng.random_range(0..10), rng.random_range(0..3)]);
        }
        cell
    };
    (0..20).map(make).collect()
}

/// Reads for a moment what the relay has to say to it, or until it closes the link.
async fn drain(link: &mut ff_measurer::link::control::ControlLink) {
    while let Ok(Ok(_)) = timeout(Duration::from_millis(50), link.recv_cell()).await {}
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn measurers_that_vanish_leave_the_relay_in_normal_service() {
    LAB.run(async |lab| {
        let relay = lab.relay("garbage");
        let (target, team) = (relay.target(), [Member::new(16)]);
        let (coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
        vanish(&relay, &coordinator, &team[0]).await;
        // The measurement waits for others, and they may come.
        MeasurementLink::open(&target, coordinator.measurement, &team[0].key).await.echo(100).await;
        // Then all of them vanish together.
        vanish(&relay, &coordinator, &team[0]).await;
        drop(coordinator);
        relay.wait_until_no_link_is_open().await;
        relay.assert_in_order().await;
    });
}

/// Opens links, sends on them, and closes them as the kernel does it for a killed process: without
/// a word, and with a reset because not all that came was read.
async fn vanish(relay: &Relay<'_>, coordinator: &Coordinator, member: &Member) {
    let mut links = Vec::new();
    for _ in 0..7 {
        let (target, id) = (relay.target(), coordinator.measurement);
        let mut link = MeasurementLink::open(&target, id, &member.key).await;
        link.echo(20).await;
        let cells = link.cells(100);
        send(&mut link.link, &cells).await;
        links.push(link);
    }
    // The first one is back, so the others follow, whether the link is still open or not.
    for link in &mut links {
        let cell = next_cell(&mut link.link).await.expect("echo cells come back");
        assert_eq!(cell.command, CMD_MEAS_ECHO);
    }
}
