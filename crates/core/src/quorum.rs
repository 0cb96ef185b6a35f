//! Quorum arithmetic: what a step leaves, and whether that is enough.

/// How many of `voters` must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// A voter may restart if the healthy others alone still agree.
pub fn survives_restart(voters: usize, healthy_others: usize) -> bool {
    healthy_others >= quorum(voters)
}

/// A voter may leave if the change can be agreed on now, with or without its own vote, and the rest can agree after.
pub fn survives_removal(voters: usize, healthy_others: usize, itself_healthy: bool) -> bool {
    voters > 1
        && healthy_others + usize::from(itself_healthy) >= quorum(voters)
        && healthy_others >= quorum(voters - 1)
}

/// A learner may become a voter, or a new voter be added, if the voters that are healthy then can agree.
pub fn survives_growth(voters: usize, healthy_then: usize) -> bool {
    healthy_then >= quorum(voters + 1)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(1, 1)]
    #[case(2, 2)]
    #[case(3, 2)]
    #[case(4, 3)]
    #[case(5, 3)]
    #[case(6, 4)]
    #[case(7, 4)]
    fn quorum_is_more_than_half(#[case] voters: usize, #[case] needed: usize) {
        assert_eq!(quorum(voters), needed);
    }

    #[rstest]
    #[case::alone(1, 0, false)]
    #[case::pair(2, 1, false)]
    #[case::three(3, 2, true)]
    #[case::three_with_one_down(3, 1, false)]
    #[case::five_with_one_down(5, 3, true)]
    #[case::five_with_two_down(5, 2, false)]
    fn restart(#[case] voters: usize, #[case] others: usize, #[case] may: bool) {
        assert_eq!(survives_restart(voters, others), may);
    }

    #[rstest]
    #[case::the_last(1, 0, true, false)]
    #[case::healthy_of_two(2, 1, true, true)]
    #[case::dead_of_two(2, 1, false, false)]
    #[case::dead_of_three(3, 2, false, true)]
    #[case::healthy_of_three_while_one_is_dead(3, 1, true, false)]
    #[case::dead_of_three_while_one_is_dead(3, 1, false, false)]
    #[case::healthy_of_four_while_one_is_dead(4, 2, true, true)]
    fn removal(#[case] voters: usize, #[case] others: usize, #[case] itself: bool, #[case] may: bool) {
        assert_eq!(survives_removal(voters, others, itself), may);
    }

    #[rstest]
    #[case::first_learner(1, 2, true)]
    #[case::unstarted_second_voter(1, 1, false)]
    #[case::unstarted_third_voter(2, 2, true)]
    #[case::fourth_while_one_is_down(3, 3, true)]
    #[case::fourth_while_two_are_down(3, 2, false)]
    fn growth(#[case] voters: usize, #[case] then: usize, #[case] may: bool) {
        assert_eq!(survives_growth(voters, then), may);
    }
}
