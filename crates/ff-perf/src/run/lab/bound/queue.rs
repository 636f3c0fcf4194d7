//! Queue of downloads that wait until their relays are free.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

/// A download to run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Purpose: `alone`, `path`, `slow`, `fast`.
    pub(super) what: &'static str,
    /// Limited relays, first hop first; the exit follows.
    pub(super) path: Vec<usize>,
    pub(super) size: Size,
}

/// Size of a download.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Size {
    /// Some seconds.
    Long,
    /// As in the paper.
    Published,
}

/// Jobs that several threads take as relays become free.
pub(super) struct Queue<'a> {
    jobs: &'a [Job],
    /// Remaining jobs and busy relays.
    state: Mutex<State>,
    /// Signalled when relays become free.
    freed: Condvar,
}

/// Remaining jobs and busy relays.
struct State {
    /// Jobs that have not begun.
    left: Vec<usize>,
    /// Whether each relay carries a download.
    busy: Vec<bool>,
}

impl<'a> Queue<'a> {
    /// A queue of jobs through this number of relays.
    pub(super) fn new(jobs: &'a [Job], relays: usize) -> Self {
        let state = State { left: (0..jobs.len()).collect(), busy: vec![false; relays] };
        Self { jobs, state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Number of jobs begun.
    pub(super) fn begun(&self) -> usize {
        self.jobs.len() - self.lock().left.len()
    }

    /// Runs jobs until none is left; returns them with their results. After a failure no other
    /// begins.
    pub(super) fn work<T>(&self, make: &impl Fn(usize) -> Result<T>) -> Vec<(usize, Result<T>)> {
        let mut made = Vec::new();
        while let Some(job) = self.take() {
            let result = make(job);
            let mut state = self.lock();
            if result.is_err() {
                state.left.clear();
            }
            for &relay in &self.jobs[job].path {
                state.busy[relay] = false;
            }
            drop(state);
            self.freed.notify_all();
            made.push((job, result));
        }
        made
    }

    /// Waits for a job whose relays are free, and takes it.
    ///
    /// Those with the most relays are the hardest to place, so they go first.
    fn take(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.left.is_empty() {
                return None;
            }
            let is_free =
                |job: &usize| self.jobs[*job].path.iter().all(|&relay| !state.busy[relay]);
            let free = state.left.iter().copied().filter(is_free);
            if let Some(job) = free.max_by_key(|&job| self.jobs[job].path.len()) {
                state.left.retain(|&other| other != job);
                for &relay in &self.jobs[job].path {
                    state.busy[relay] = true;
                }
                return Some(job);
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Jobs with these paths.
    fn jobs(paths: &[&[usize]]) -> Vec<Job> {
        let job = |path: &&[usize]| Job { what: "path", path: path.to_vec(), size: Size::Long };
        paths.iter().map(job).collect()
    }

    #[test]
    fn no_relay_carries_two_at_once_and_all_are_made() {
        let jobs = jobs(&[&[0], &[0, 1], &[1], &[2], &[0, 1, 2], &[2], &[0]]);
        let queue = Queue::new(&jobs, 3);
        let uses = [const { AtomicUsize::new(0) }; 3];
        let make = |job: usize| {
            for &relay in &jobs[job].path {
                assert_eq!(uses[relay].fetch_add(1, Ordering::SeqCst), 0, "relay {relay}");
            }
            thread::sleep(Duration::from_millis(2));
            for &relay in &jobs[job].path {
                uses[relay].fetch_sub(1, Ordering::SeqCst);
            }
            Ok(job)
        };
        let mut made = thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| queue.work(&make))).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("it ends"))
                .collect::<Vec<_>>()
        });
        made.sort_by_key(|(job, _)| *job);
        let found: Vec<_> = made.into_iter().map(|(_, found)| found.expect("made")).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn none_begins_after_one_has_failed() {
        let jobs = jobs(&[&[0], &[0], &[0]]);
        let made = Queue::new(&jobs, 1).work(&|job| {
            anyhow::ensure!(job != 2, "no");
            Ok(job)
        });
        assert!(made.last().is_some_and(|(_, found)| found.is_err()));
        assert!(made.len() <= 3);
    }
}
