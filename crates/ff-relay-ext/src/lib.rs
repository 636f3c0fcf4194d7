//! The target side of FlashFlow: what a relay needs to be measured.
//!
//! [`target::RelayTarget`] is the whole of it as one state machine without sockets, clock or
//! thread, for any host. [`options`] are the operator's, [`memory`] outlives a restart,
//! [`background`] holds clients' traffic to its share. With the feature `arti`, [`arti`] embeds
//! it in Arti relays. With `ffi`, `include/ff_relay_ext.h` has it for C.
//!
//! # Embedding in C
//!
//! ```sh
//! cargo rustc -p ff-relay-ext --lib --release --no-default-features --features ffi \
//!     --crate-type staticlib
//! cc -Icrates/ff-relay-ext/include relay.c target/release/libff_relay_ext.a -lpthread -ldl -lm
//! ```
//!
//! The archive holds the protocol, its ciphers and the Rust standard library: no tokio, nothing
//! of Arti, no thread, socket, clock or random number generator. The relay brings these, and
//! calls from one thread. In short, with errors and the operator's options left out:
//!
//! ```c
//! ff_target_new(path, NULL, error, sizeof(error), &target);
//! ff_target_set_options(target, options, count, now(), error, sizeof(error));
//!
//! void on_cell(struct link *link, uint8_t *cell) {
//!   if (cell[4] == FF_CMD_MEAS_ECHO && link->circuit && circ_id(cell) == ff_circuit_id(link->circuit)) {
//!     ff_circuit_echo(link->circuit, cell + 5);      /* in place: the cell is its own answer */
//!     send_cell(link, cell);
//!     /* or once for all cells of a read */
//!     ff_target_on_echoed(target, ff_circuit_measurer(link->circuit), 1, now());
//!   } else if (cell[4] == FF_CMD_MEASUREMENT) {
//!     ff_arrival arrival = { link->id, circ_id(cell), link->has_circuits, cell + 5, exporter(link),
//!                            fresh_random(), now(), time(NULL) };
//!     ff_target_handle_control(target, &arrival);
//!   }
//!   do_outputs();
//! }
//!
//! void do_outputs(void) {
//!   ff_output output;
//!   while (ff_target_poll_output(target, &output) == FF_STATUS_OK && output.kind != FF_OUTPUT_KIND_NONE) {
//!     switch (output.kind) {
//!     case FF_OUTPUT_KIND_SEND: send_cell(find_link(output.link), output.cell); break;
//!     case FF_OUTPUT_KIND_OPEN: find_link(output.link)->circuit = output.circuit; break;
//!     ...
//! ```
//!
//! The header's first comment has the rules: who calls what and when, threads, ownership, and what
//! happens after an internal error. `tests/c/measure.c` is a whole host; `tests/c/c_interface.rs`
//! measures it.
//!
//! `ff_circuit_echo` is for hosts without relay crypto. A relay takes `ff_circuit_crypto` and
//! `ff_circuit_forward_key` when it gets a circuit, starts its own relay cipher with them, and
//! decrypts echo cells with that: then an echoed cell costs exactly what a forwarded one does.
//!
//! A sandbox may forbid opening files, as C tor's does. Then `ff_target_new` gets no path: the
//! relay stores the text of each `FF_OUTPUT_KIND_STORE` in a way of its own, and passes it to
//! `ff_target_new` at the next start.
//!
//! Panics stay inside; so the archive must be built with `panic = "unwind"`, as it is by default.

#[cfg(feature = "arti")]
pub mod arti;
pub mod background;
#[cfg(feature = "ffi")]
pub mod ffi;
pub mod ingress;
pub mod memory;
pub mod options;
pub mod target;
