//! Large things that are used again for the next month.
//!
//! Were they freed and made anew each time, in turn by several threads, what the allocator has
//! would grow from month to month: it cannot use all of what one thread has freed for another, or
//! for what is a little larger. What libraries make themselves, as what unpacks does, goes back to
//! the system each time: [`give_back_what_is_large`].

use std::sync::Mutex;

/// Blocks of at least this number of bytes go back to the system when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: libc::c_int = 1 << 17;

/// From here on, what is large goes back to the system as soon as it is freed. By itself glibc
/// begins so, but keeps everything up to the largest thing that was ever freed: a year of months
/// then took a fifth more memory than one. An ingest takes 3 % longer for it.
pub(crate) fn give_back_what_is_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "there is no other way to tell the allocator")]
    // SAFETY: it sets a number that the allocator compares lengths with, under the allocator's own
    // lock.
    unsafe {
        // Where it cannot be set, memory is what it was.
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

/// At most this number is kept.
const MOST: usize = 16;

/// Values that are kept until they are needed again.
#[derive(Debug)]
pub(crate) struct Spare<T>(Mutex<Vec<T>>);

impl<T> Spare<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Keeps something, unless there is enough of it.
    pub(crate) fn put(&self, one: T) {
        if let Ok(mut all) = self.0.lock()
            && all.len() < MOST
        {
            all.push(one);
        }
    }

    /// Takes what was put here last of what fits, if there is any.
    pub(crate) fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut all = self.0.lock().ok()?;
        let at = all.iter().rposition(fits)?;
        Some(all.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_last_is_taken_first_if_it_fits() {
        let spare = Spare::new();
        (0..20).for_each(|number| spare.put(number));
        assert_eq!(spare.take(|_| true), Some(15));
        assert_eq!(spare.take(|number| *number < 3), Some(2));
        assert_eq!(spare.take(|number| *number == 15), None);
    }
}
