//! Transfers in today's network: over two conflux legs, with their durations.

use super::Engine;
use crate::tortoise::users::UserKind;

impl Engine<'_> {
    /// Divides the rest of each user's transfer among the links that still carry a part, in
    /// proportion to their rates: a sender uses the leg that has room.
    pub(super) fn pool(&mut self) {
        let mut at = 0;
        while let Some(&(number, _)) = self.active.get(at) {
            // The links of a user are adjacent, because they begin together.
            let legs = self.active[at..].iter().take_while(|(user, _)| *user == number).count();
            let (active, rates) = (&self.active[at..at + legs], &self.rates[at..at + legs]);
            let links = &mut self.users[number as usize].links;
            let left: f64 = active.iter().map(|(_, place)| links[*place as usize].left).sum();
            let all: f64 = rates.iter().sum();
            if legs > 1 && all > 0.0 {
                for ((_, place), rate) in active.iter().zip(rates) {
                    links[*place as usize].left = left * rate / all;
                }
            }
            at += legs;
        }
    }

    /// Records the duration of a user's transfer if it ended in the measured time.
    pub(super) fn keep_time(&mut self, number: u32) {
        let user = &self.users[number as usize];
        if (self.counts.0..=self.counts.1).contains(&user.ended) {
            let kind = usize::from(user.client.kind == UserKind::Bulk);
            self.outcome.secs[kind].push(user.ended - user.asked);
        }
    }
}
