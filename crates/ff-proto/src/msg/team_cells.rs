//! Numbers of cells for each measurer of a team.

use super::MAX_MEASURERS;
use crate::ids::MeasurerIndex;
use crate::units::Cells;

/// The largest number of measurers, as a length.
const MAX_LEN: usize = MAX_MEASURERS as usize;

/// A number of cells for each measurer of a team, in the order of the request.
///
/// It has room for the largest team, so that counting allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamCells {
    /// The numbers, followed by zeros.
    cells: [u64; MAX_LEN],
    /// The number of measurers of the team: 1 to [`MAX_MEASURERS`].
    measurers: usize,
}

impl TeamCells {
    /// Zero cells for a team of `measurers`, or for the largest team if `measurers` is too large.
    #[must_use]
    pub fn none(measurers: usize) -> Self {
        Self { cells: [0; MAX_LEN], measurers: measurers.clamp(1, MAX_LEN) }
    }

    /// These numbers; `None` without numbers, or with more than [`MAX_MEASURERS`].
    #[must_use]
    pub fn from_slice(cells: &[u64]) -> Option<Self> {
        if cells.is_empty() {
            return None;
        }
        let mut all = Self { cells: [0; MAX_LEN], measurers: cells.len() };
        all.cells.get_mut(..cells.len())?.copy_from_slice(cells);
        Some(all)
    }

    /// The numbers, one for each measurer.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        self.cells.get(..self.measurers).unwrap_or(&self.cells)
    }

    /// Adds a measurer's cells; ignores a measurer that the team does not have.
    pub fn add(&mut self, measurer: MeasurerIndex, cells: Cells) {
        let index = usize::from(measurer.0);
        if index < self.measurers
            && let Some(count) = self.cells.get_mut(index)
        {
            *count = count.saturating_add(cells.0);
        }
    }

    /// Returns the numbers and sets them to zero.
    #[must_use]
    pub fn take(&mut self) -> Self {
        core::mem::replace(self, Self::none(self.measurers))
    }

    /// The sum of the numbers.
    #[must_use]
    pub fn sum(&self) -> Cells {
        Cells(self.as_slice().iter().fold(0, |sum, cells| sum.saturating_add(*cells)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_the_measurers_whose_index_they_have() {
        let mut cells = TeamCells::none(2);
        for (measurer, count) in [(0, 5), (1, u64::MAX), (1, 9), (2, 7), (255, 7)] {
            cells.add(MeasurerIndex(measurer), Cells(count));
        }
        assert_eq!(cells.as_slice(), [5, u64::MAX]);
        assert_eq!(cells.sum(), Cells(u64::MAX));
        assert_eq!(cells.take().as_slice(), [5, u64::MAX]);
        assert_eq!(cells, TeamCells::from_slice(&[0, 0]).unwrap());
    }

    #[test]
    fn a_list_has_one_to_eight_numbers() {
        for len in 0..20 {
            let list = TeamCells::from_slice(&vec![3; len]);
            assert_eq!(list.is_some(), (1..=8).contains(&len), "{len}");
            assert!(list.is_none_or(|list| list.as_slice() == vec![3; len]));
        }
        assert_eq!(TeamCells::none(0).as_slice().len(), 1);
        assert_eq!(TeamCells::none(99).as_slice().len(), 8);
    }
}
