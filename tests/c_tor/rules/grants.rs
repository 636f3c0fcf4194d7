//! How many sockets a relay grants, and which links it lets join.

use ed25519_dalek::SigningKey;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::ErrCode;

use super::LAB;
use super::session::{
    Coordinator, LONGEST_SECS, MeasurementLink, Member, codes_until_closed, error_code,
};

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn a_team_announces_no_more_sockets_than_the_operator_allows() {
    LAB.run(async |lab| {
        let relay = lab.relay("grants");
        let (target, key) = (relay.target(), relay.key());
        let ask = async |sockets| {
            let team = [Member::new(12), Member::new(sockets)];
            Coordinator::ask(&target, key, 1, &team).await
        };
        let (mut coordinator, answer) = ask(501).await;
        assert_eq!(error_code(&answer), Some(ErrCode::TOO_MANY_SOCKETS), "{answer:?}");
        assert_eq!(codes_until_closed(&mut coordinator.link).await, []);
        let (coordinator, answer) = ask(500).await;
        assert_eq!(error_code(&answer), None, "{answer:?}");
        coordinator.end().await;
    });
}

#[test]
#[ignore = "needs a relay to test: FF_TEST_TOR, or FF_TEST_ARTI_RELAY and root"]
fn only_announced_measurers_join_and_with_no_more_sockets_than_announced() {
    LAB.run(async |lab| {
        let relay = lab.relay("grants");
        let (target, team) = (relay.target(), [Member::new(2), Member::new(1)]);
        let (coordinator, _) =
            Coordinator::granted(&target, relay.key(), LONGEST_SECS, &team).await;
        let id = coordinator.measurement;
        let refusal = async |id, member: &SigningKey| {
            MeasurementLink::try_open(&target, id, member).await.err()
        };

        let stranger = Member::new(1).key;
        assert_eq!(refusal(id, &stranger).await, Some(ErrCode::UNKNOWN_MEASURER));
        let other = MeasurementId(rand::random());
        assert_eq!(refusal(other, &team[0].key).await, Some(ErrCode::UNKNOWN_MEASUREMENT));
        let mut links = Vec::new();
        for member in [0, 0, 1] {
            let mut link = MeasurementLink::open(&target, id, &team[member].key).await;
            link.echo(1).await;
            links.push(link);
        }
        for member in &team {
            assert_eq!(refusal(id, &member.key).await, Some(ErrCode::TOO_MANY_SOCKETS));
        }
        // A socket that was closed is not given back.
        drop(links.pop());
        assert_eq!(refusal(id, &team[1].key).await, Some(ErrCode::TOO_MANY_SOCKETS));

        // All that leaves the links that are open alone.
        for link in &mut links {
            link.echo(100).await;
        }
        coordinator.end().await;
        assert_eq!(refusal(id, &team[0].key).await, Some(ErrCode::UNKNOWN_MEASUREMENT));
    });
}
