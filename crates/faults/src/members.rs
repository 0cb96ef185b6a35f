//! The same troubles on the way to etcd's members.

use etcd::Error;
use etcd::faults::{Trouble, Troubles};

use crate::{Fate, Hit, Line};

/// What changes a cluster; everything else only asks.
const CHANGES: [&str; 4] = ["MemberAdd", "MemberRemove", "MemberPromote", "MoveLeader"];

impl Troubles for Line {
    fn before(&self, call: &str) -> Trouble {
        if self.is_dead() {
            return Trouble::Dead;
        }
        let kind = format!("etcd {call}");
        match self.fate(&kind, kind.clone(), !CHANGES.contains(&call)) {
            Fate::Pass | Fate::Stale | Fate::Unknown => Trouble::None,
            Fate::Hit(Hit::Death) => Trouble::Death,
            Fate::Hit(Hit::AnswerLost) => Trouble::AnswerLost(Error::TimedOut),
            Fate::Hit(Hit::Lost) => Trouble::Refused(Error::TimedOut),
            Fate::Hit(Hit::Conflict) => Trouble::Refused(Error::UnhealthyCluster),
            Fate::Hit(Hit::TooMany) => Trouble::Refused(Error::NoLeader),
            Fate::Hit(Hit::ServerError) => Trouble::Refused(Error::Unreachable("cut by the test".into())),
        }
    }

    fn sent(&self) -> Box<dyn Send> {
        Box::new(Self::sent(self))
    }

    fn after(&self, call: &str, done: bool) {
        if !done || !CHANGES.contains(&call) {
            return;
        }
        let kind = format!("etcd {call}");
        self.write(|book| {
            book.wrote(&kind);
            if call != "MoveLeader" {
                book.made_one(&kind);
            }
        });
    }

    fn died(&self) {
        self.die();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Point};

    const ADD: &str = "MemberAdd";

    fn at(nth: usize, hit: Hit) -> Fault {
        Fault::At(Point { kind: format!("etcd {ADD}"), nth }, hit)
    }

    #[test]
    fn only_what_is_done_is_counted() {
        let line = Line::new(at(2, Hit::Death));
        for done in [true, false] {
            assert_eq!(line.before(ADD), if done { Trouble::None } else { Trouble::Death });
            line.after(ADD, done);
        }
        assert_eq!(line.before(ADD), Trouble::Death, "the second one is still to come");
        assert_eq!(line.book(|book| (book.points().len(), book.made()[&format!("etcd {ADD}")])), (1, 1));
    }

    #[test]
    fn a_write_is_kept_from_being_done_once() {
        let line = Line::new(at(1, Hit::Conflict));
        assert_eq!(line.before(ADD), Trouble::Refused(Error::UnhealthyCluster));
        assert_eq!(line.before(ADD), Trouble::None);
    }

    #[test]
    fn every_chapter_counts_anew() {
        let line = Line::new(Fault::None);
        line.after(ADD, true);
        assert_eq!(line.turn(at(1, Hit::Death)).points().len(), 1);
        assert_eq!(line.before(ADD), Trouble::Death);
        line.after(ADD, true);
        assert_eq!(line.book(|book| book.points().to_vec()), [Point { kind: format!("etcd {ADD}"), nth: 1 }]);
    }
}
