//! Large things that are used again for the next month.
//!
//! Were they freed and made anew each time, in turn by several threads, what the allocator has would grow from month to
//! month: it cannot use all of what one thread has freed for another, or for what is a little larger.

use std::sync::Mutex;

/// No more than this are kept, whatever is put here.
const MOST: usize = 16;

/// What is kept until it is needed again.
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
