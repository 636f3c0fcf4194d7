//! `ff-perf` in private networks, as people run it. One program, in which tests run beside each other, and more of them than
//! there are cores: they wait most of the time.

mod check;
mod client_tor;
mod delays;
mod lab_ends;
mod liars;
mod lost;
mod mute;
mod run;
mod selection;
mod serve;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// How many run at once if nothing else is said.
const AT_ONCE: usize = 4;

/// Functions as tests by their paths; one that panics has failed.
macro_rules! tests {
    ($($($name:ident)::+),+ $(,)?) => {
        vec![$(test(stringify!($($name)::+), $($name)::+)),+]
    };
}

/// A test.
fn test(name: &str, run: fn()) -> Trial {
    Trial::test(name.replace(' ', ""), move || {
        run();
        Ok(())
    })
}

fn main() -> ExitCode {
    // The longest first.
    let mut tests = tests![
        check::a_relay_that_starves_clients_is_found_and_no_other,
        client_tor::a_tor_is_taken_over_and_has_its_own_options_back,
        run::circuits_are_measured_and_what_is_wrong_is_named,
        lab_ends::sigterm_ends_what_measures_and_all_nodes,
        lab_ends::sigterm_ends_a_network_that_is_starting,
        liars::real_exits_that_accept_the_probe_are_named,
        liars::arti_names_an_exit_that_says_what_cannot_be,
        liars::arti_measures_whatever_else_comes_back,
        mute::what_is_given_up_at_a_mute_guard_is_gone,
        mute::a_link_that_another_circuit_gave_up_is_waited_for,
        selection::tor::paths_are_drawn_as_a_c_tor_draws_them,
        selection::arti::paths_are_drawn_as_arti_draws_them,
        serve::circuits_are_measured_until_a_signal_whatever_happens,
    ];
    // They take five minutes of an idle machine.
    let idle = tests![
        delays::an_idle_network_is_as_far_as_it_was_set,
        delays::an_idle_network_without_kist
    ];
    tests.extend(idle.into_iter().map(|test| test.with_ignored_flag(true)));
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, tests).exit_code()
}
