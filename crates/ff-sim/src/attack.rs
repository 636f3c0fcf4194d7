//! What attackers gain, beside what formulas say (paper §5, Table 2, App. A).
