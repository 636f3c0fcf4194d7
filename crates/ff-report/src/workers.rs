//! Threads that stay for the next work of their kind.
//!
//! What one thread has freed, another cannot always use: were there new threads for each month,
//! many months would take more memory than one.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread;

/// Some work, and what tells others that it is done: by then its thread waits for more.
type Work = Box<dyn FnOnce() -> Box<dyn FnOnce()> + Send>;

/// What wakes the threads that have nothing to do, by their names.
static IDLE: Mutex<BTreeMap<&'static str, Vec<Sender<Work>>>> = Mutex::new(BTreeMap::new());

/// Has a thread of this name work; its result comes when the next work may be given to the same
/// thread, and never if it panics.
///
/// # Errors
/// When no other thread can be started.
pub fn run<R: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<Receiver<R>> {
    let (to, result) = channel();
    let mut work: Work = Box::new(move || {
        let result = work();
        // Nobody has to wait for it.
        Box::new(move || drop(to.send(result)))
    });
    let idle = IDLE.lock().ok().and_then(|mut idle| idle.get_mut(name)?.pop());
    if let Some(idle) = idle {
        match idle.send(work) {
            Ok(()) => return Ok(result),
            Err(SendError(back)) => work = back,
        }
    }
    thread::Builder::new().name(name.to_owned()).spawn(move || stay(name, work))?;
    Ok(result)
}

/// Does one work after the other.
fn stay(name: &'static str, mut work: Work) {
    let (to, from) = channel();
    loop {
        let tell = work();
        let Ok(mut idle) = IDLE.lock() else { return };
        idle.entry(name).or_default().push(to.clone());
        drop(idle);
        tell();
        let Ok(next) = from.recv() else { return };
        work = next;
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    fn thread_of(name: &'static str) -> Receiver<ThreadId> {
        run(name, || thread::current().id()).expect("a thread")
    }

    #[test]
    fn work_of_a_kind_stays_with_its_thread() {
        let first = thread_of("one").recv().expect("done");
        for _ in 0..100 {
            assert_eq!(thread_of("one").recv(), Ok(first));
            assert_ne!(thread_of("two").recv(), Ok(first));
        }
        let (to, from) = channel::<()>();
        let busy = run("one", move || from.recv()).expect("a thread");
        assert_ne!(thread_of("one").recv(), Ok(first));
        drop(to);
        assert!(busy.recv().is_ok_and(|waited| waited.is_err()));
    }

    #[test]
    fn who_panics_tells_nothing_and_another_works_on() {
        let result =
            run("panics", || assert!(thread::current().name().is_none())).expect("a thread");
        assert!(result.recv().is_err());
        assert!(thread_of("panics").recv().is_ok());
    }
}
