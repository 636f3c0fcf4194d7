//! Processes cases in several threads, with results in the order of the cases.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

/// Processes each case, `jobs` of them at once, and returns the results in the order of the cases.
/// After each case `tell` gets the number of finished cases, the case and its result; calls of
/// `tell` never overlap.
///
/// # Errors
/// Errors of `work`; the thread takes no further cases then. A panic in another thread is also an
/// error.
pub fn map<C: Sync, R: Send>(
    cases: &[C],
    jobs: usize,
    work: impl Fn(&C) -> Result<R> + Sync,
    tell: impl Fn(usize, &C, &R) + Sync,
) -> Result<Vec<R>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(cases.len())));
    let take_cases = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else { return Ok(()) };
            let result = work(case)?;
            let mut found = found.lock().map_err(|_| panicked())?;
            tell(found.len() + 1, case, &result);
            found.push((at, result));
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs.min(cases.len())).map(|_| scope.spawn(take_cases)).collect();
        let mut result = take_cases();
        for other in others {
            result = result.and(other.join().unwrap_or_else(|_| Err(panicked())));
        }
        result
    })?;
    let mut found = found.into_inner().map_err(|_| panicked())?;
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, result)| result).collect())
}

/// The error of another thread's panic.
fn panicked() -> anyhow::Error {
    anyhow!("internal error: a thread has panicked")
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_cases_on_any_number_of_threads() {
        let cases: Vec<u32> = (0..100).collect();
        let doubled: Vec<u32> = cases.iter().map(|case| case * 2).collect();
        for jobs in [0, 1, 3, 200] {
            let told = Mutex::new(Vec::new());
            let tell = |done: usize, _: &u32, _: &u32| told.lock().expect("no panic").push(done);
            let found = map(&cases, jobs, |case| Ok(case * 2), tell).expect("none fails");
            assert_eq!(found, doubled);
            assert_eq!(told.into_inner().expect("no panic"), (1..=100).collect::<Vec<usize>>());
        }
    }

    #[test]
    fn a_case_that_fails_is_an_error_on_any_number_of_threads() {
        let cases: Vec<u32> = (0..100).collect();
        for jobs in [1, 3] {
            let work = |case: &u32| if *case == 50 { bail!("it fails") } else { Ok(*case) };
            let error = map(&cases, jobs, work, |_, _, _| ()).expect_err("one fails");
            assert_eq!(error.to_string(), "it fails");
        }
    }
}
