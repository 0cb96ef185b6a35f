//! Empty: a package must have a target.
