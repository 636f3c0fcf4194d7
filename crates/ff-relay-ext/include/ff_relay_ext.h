/*
 * FlashFlow's target for C: what a relay needs to be measured.
 *
 * Made from src/ffi.rs by tests/c/header.rs. Link with libff_relay_ext.a, which
 * `cargo rustc -p ff-relay-ext --lib --release --no-default-features --features ffi
 * --crate-type staticlib` makes, and with -lpthread -ldl -lm.
 *
 * The library has no socket, clock, thread or random numbers; it opens no file but the one given
 * to ff_target_new, and writes nothing to standard output. It is one state machine, ff_target,
 * and beside it one small ff_circuit for each measurement link. The relay calls
 *
 *   ff_target_new, _set_options, _set_params    at the start; the latter two again on changes
 *   ff_target_handle_control                    for each MEASUREMENT cell, on any link
 *   ff_circuit_echo                             for each MEAS_ECHO cell on a link with a circuit;
 *                                               or the relay's own cipher, started with
 *                                               ff_circuit_crypto and ff_circuit_forward_key
 *   ff_target_on_echoed                         once for all cells echoed at once to one measurer,
 *                                               whose circuit says who that is
 *                                               (ff_circuit_measurer)
 *   ff_target_on_background                     for all other bytes that move
 *   ff_target_handle_link_closed                when a link is gone; then ff_circuit_free
 *   ff_target_handle_timeout                    when the time of ff_target_poll_timeout has come
 *   ff_target_abort                             when the relay itself cannot go on measuring
 *
 * and after each of handle_control, on_echoed, handle_link_closed, handle_timeout and abort it
 * calls ff_target_poll_output until that has nothing more, and does what it says. Before it moves
 * other bytes, it asks ff_target_background_allowance. A MEAS_ECHO cell on a link without a
 * circuit, or with another id than ff_circuit_id, is none of the library's: close the link.
 *
 * Threads: all calls with one target come from one thread at a time, and so do all calls with one
 * circuit; a target and its circuits are independent of each other. Nothing is locked.
 *
 * Apart from measurements there is ff_ingress: how many bytes a second each link gets, by what its
 * peer is. The relay makes one of its options and of each consensus, asks ff_ingress_decide for each
 * link, and without FF_STATUS_OK goes by its own rule.
 *
 * Ownership: what is passed in stays the caller's and is not kept. Circuits are the caller's from
 * FF_OUTPUT_KIND_OPEN on. Outputs are written on FF_STATUS_OK only; error texts only otherwise.
 *
 * Failure: no call ends the process but for want of memory. After an internal error the relay is
 * back in normal service: the target closes its links by FF_OUTPUT_KIND_CLOSE, tells the operator
 * once, limits nothing and does nothing more. Only the status of ff_target_poll_output must be looked
 * at, because without FF_STATUS_OK there is no output, and that of ff_circuit_echo, because without
 * it the cell is not decrypted.
 *
 * Time is monotonic, in microseconds since any moment that stays the same.
 */


#ifndef FF_RELAY_EXT_H
#define FF_RELAY_EXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Label of the TLS exporter (RFC 5705) of a link; its context is empty. */
#define FF_EXPORTER_LABEL "EXPORTER-flashflow-link-1"

/**
 * Bytes of a cell on the wire: circuit id (4), command (1), body.
 */
#define FF_CELL_LEN 514

/**
 * Bytes of a cell's body.
 */
#define FF_BODY_LEN 509

/**
 * Command of the cells for `ff_target_handle_control`.
 */
#define FF_CMD_MEASUREMENT 80

/**
 * Command of the cells that are echoed.
 */
#define FF_CMD_MEAS_ECHO 81

/**
 * Bytes to take from the TLS exporter, and of fresh random numbers for each control cell.
 */
#define FF_SECRET_LEN 32

/**
 * What `ff_target_poll_timeout` returns when there is nothing to wait for.
 */
#define FF_NO_TIMEOUT 18446744073709551615ull

/**
 * Bytes of the forward key of FF_CRYPTO_KIND_AES128_CTR.
 */
#define FF_KEY_LEN_AES128_CTR 16

/**
 * Bytes of the forward key of FF_CRYPTO_KIND_CGO_AES128, in the order of tor's CGO: AES key and
 * POLYVAL key of its tweakable cipher, AES key and POLYVAL key of its keystream, nonce.
 */
#define FF_KEY_LEN_CGO_AES128 80

/**
 * The most measurers of one measurement.
 */
#define FF_MEASURERS_MAX 8

/**
 * What a call came to. With every value but FF_STATUS_OK no output has been written.
 */
typedef enum ff_status {
  /**
   * The call did what it is for; of a target that has failed, nothing.
   */
  FF_STATUS_OK = 0,
  /**
   * A pointer that must not be NULL was.
   */
  FF_STATUS_NULL_POINTER = 1,
  /**
   * A text is not UTF-8.
   */
  FF_STATUS_BAD_TEXT = 2,
  /**
   * An option is not known or its value is out of bounds.
   */
  FF_STATUS_BAD_OPTION = 3,
  /**
   * The memory of earlier measurements cannot be read.
   */
  FF_STATUS_BAD_MEMORY = 4,
  /**
   * There was an internal error. The target or circuit is out of service from here on.
   */
  FF_STATUS_PANIC = 5,
  /**
   * A buffer does not have the length that it must have.
   */
  FF_STATUS_BAD_LENGTH = 6,
} ff_status;

/**
 * What the relay must do.
 */
typedef enum ff_output_kind {
  /**
   * Nothing more.
   */
  FF_OUTPUT_KIND_NONE = 0,
  /**
   * Send `cell` on `link`.
   */
  FF_OUTPUT_KIND_SEND = 1,
  /**
   * `link` is a measurement link from here on: keep `circuit` with it. The circuit is the
   * caller's now, who must give it to `ff_circuit_free`, also when the link is gone already.
   */
  FF_OUTPUT_KIND_OPEN = 2,
  /**
   * Send what is pending on `link` and close it.
   */
  FF_OUTPUT_KIND_CLOSE = 3,
  /**
   * Write `text` to the log at `level`.
   */
  FF_OUTPUT_KIND_TELL = 4,
  /**
   * Store `text` in place of what was stored before, so that it survives a restart; when that
   * fails, call `ff_target_abort`. Only for targets made without a file.
   */
  FF_OUTPUT_KIND_STORE = 5,
  /**
   * The measurement of `link` is over: forget its circuit, and drop its FF_CMD_MEAS_ECHO cells.
   * Go on reading: over unread input it would be reset, and its last message lost. Unless its
   * peer closes it, FF_OUTPUT_KIND_CLOSE comes two seconds later.
   */
  FF_OUTPUT_KIND_OVER = 6,
} ff_output_kind;

/**
 * How much the operator wants to hear something.
 */
typedef enum ff_level {
  /**
   * What any stranger can cause, however often.
   */
  FF_LEVEL_INFO = 0,
  /**
   * What the relay and its coordinators do.
   */
  FF_LEVEL_NOTICE = 1,
  /**
   * What the operator should see to.
   */
  FF_LEVEL_WARN = 2,
} ff_level;

/**
 * A link's part in a measurement.
 */
typedef enum ff_part {
  /**
   * It has none: what it carries is background.
   */
  FF_PART_NONE = 0,
  /**
   * The measurement that is granted or running was asked for on it.
   */
  FF_PART_COORDINATOR = 1,
  /**
   * It has a measurement circuit.
   */
  FF_PART_MEASUREMENT = 2,
  /**
   * It had one; what it brings is dropped.
   */
  FF_PART_ENDING = 3,
} ff_part;

/**
 * Which cipher the cells of a circuit pass through.
 */
typedef enum ff_crypto_kind {
  /**
   * There is no circuit.
   */
  FF_CRYPTO_KIND_NONE = 0,
  /**
   * AES-128-CTR from a zero counter over the whole body.
   */
  FF_CRYPTO_KIND_AES128_CTR = 1,
  /**
   * Counter Galois Onion with AES-128, the relay's forward direction of a cell that it does not
   * recognise; the cell's command is FF_CMD_MEAS_ECHO, and the tag before the first cell zeros.
   */
  FF_CRYPTO_KIND_CGO_AES128 = 2,
} ff_crypto_kind;

/**
 * Why a link gets what it gets.
 */
typedef enum ff_ingress_reason {
  /**
   * There are no rules: the relay's own hold.
   */
  FF_INGRESS_REASON_OFF = 0,
  /**
   * Its address is exempt.
   */
  FF_INGRESS_REASON_EXEMPT_ADDRESS = 1,
  /**
   * It is a relay's with the flags that exempt it.
   */
  FF_INGRESS_REASON_EXEMPT_RELAY = 2,
  /**
   * It is a client's.
   */
  FF_INGRESS_REASON_CLIENT = 3,
  /**
   * Its identity is not a listed relay's.
   */
  FF_INGRESS_REASON_UNLISTED = 4,
  /**
   * The relay does not have the flag Fast.
   */
  FF_INGRESS_REASON_NOT_FAST = 5,
  /**
   * The relay does not have the flag Stable.
   */
  FF_INGRESS_REASON_NOT_STABLE = 6,
  /**
   * It is a relay's, but none are exempt.
   */
  FF_INGRESS_REASON_NONE_EXEMPT = 7,
} ff_ingress_reason;

/**
 * A link's measurement circuit.
 */
typedef struct ff_circuit ff_circuit;

/**
 * What a link gets, by torrc and a consensus. It does not change: make another one for others.
 */
typedef struct ff_ingress ff_ingress;

/**
 * The relay's side of all measurements.
 */
typedef struct ff_target ff_target;

/**
 * An option of the operator's, as torrc has it.
 */
typedef struct ff_option {
  /**
   * Its name, e.g. "FFMeasurementsAllowed"; the case does not matter.
   */
  const char *name;
  /**
   * Its value, e.g. "1".
   */
  const char *value;
} ff_option;

/**
 * A parameter of the consensus.
 */
typedef struct ff_param {
  /**
   * Its name, that of an option.
   */
  const char *name;
  /**
   * Its value.
   */
  int64_t value;
} ff_param;

/**
 * A MEASUREMENT cell, and where and when it came. The library keeps none of the pointers.
 */
typedef struct ff_arrival {
  /**
   * The link: any number that no other link has, or will have.
   */
  uint64_t link;
  /**
   * The cell's circuit id.
   */
  uint32_t circ_id;
  /**
   * Whether the link has, or has had, circuits that are not ours.
   */
  bool has_circuits;
  /**
   * The cell's body: FF_BODY_LEN bytes.
   */
  const uint8_t *body;
  /**
   * What the link's TLS exporter gives for FF_EXPORTER_LABEL: FF_SECRET_LEN bytes.
   */
  const uint8_t *exporter;
  /**
   * FF_SECRET_LEN fresh bytes of a cryptographic random number generator.
   */
  const uint8_t *entropy;
  /**
   * Monotonic time in microseconds.
   */
  uint64_t now_micros;
  /**
   * Seconds since 1970.
   */
  uint64_t unix_secs;
} ff_arrival;

/**
 * The next thing that the relay must do. Fields of other kinds are zero.
 */
typedef struct ff_output {
  /**
   * What to do.
   */
  enum ff_output_kind kind;
  /**
   * For FF_OUTPUT_KIND_TELL.
   */
  enum ff_level level;
  /**
   * For FF_OUTPUT_KIND_SEND, OPEN, OVER and CLOSE. It may be gone already; then drop the output.
   */
  uint64_t link;
  /**
   * For FF_OUTPUT_KIND_OPEN.
   */
  struct ff_circuit *circuit;
  /**
   * For FF_OUTPUT_KIND_TELL and STORE; valid until the target's next `ff_target_poll_output`
   * or `ff_target_free`.
   */
  const char *text;
  /**
   * For FF_OUTPUT_KIND_SEND: the whole cell as it goes over the wire.
   */
  uint8_t cell[FF_CELL_LEN];
} ff_output;

/**
 * What the relay has been through since `ff_target_new`. Numbers only grow.
 */
typedef struct ff_totals {
  /**
   * Measurements granted.
   */
  uint64_t granted;
  /**
   * Requests refused.
   */
  uint64_t refused;
  /**
   * Measurements that ended as planned.
   */
  uint64_t completed;
  /**
   * Measurements that did not.
   */
  uint64_t failed;
  /**
   * Bytes echoed, as 514 a cell.
   */
  uint64_t echoed_bytes;
  /**
   * Background bytes received while being measured.
   */
  uint64_t background_bytes;
  /**
   * How often background traffic had to wait for its share.
   */
  uint64_t background_waits;
} ff_totals;

/**
 * How much background traffic may move now. All zero means without limit.
 */
typedef struct ff_allowance {
  /**
   * Whether there is a limit.
   */
  bool is_limited;
  /**
   * Bytes that may be received, if there is one.
   */
  uint64_t receive_bytes;
  /**
   * Bytes that may be sent, if there is one.
   */
  uint64_t send_bytes;
  /**
   * Of the former, those that measurement traffic must leave to background.
   */
  uint64_t receive_reserved_bytes;
  /**
   * Of the latter, those that measurement traffic must leave to background.
   */
  uint64_t send_reserved_bytes;
} ff_allowance;

/**
 * What the relay knows of the other end of a link.
 */
typedef struct ff_ingress_peer {
  /**
   * Whether it has shown an identity.
   */
  bool is_authenticated;
  /**
   * Whether the relay has a descriptor of it.
   */
  bool is_known;
  /**
   * Whether the consensus lists it; flags and weight count only then.
   */
  bool is_listed;
  /**
   * Whether it has the flag Fast.
   */
  bool is_fast;
  /**
   * Whether it has the flag Stable.
   */
  bool is_stable;
  /**
   * Whether its weight was measured.
   */
  bool is_measured;
  /**
   * Whether the consensus has a measured weight of any relay.
   */
  bool is_any_measured;
  /**
   * Its weight in bytes per second.
   */
  uint64_t weight;
  /**
   * Its address, 4 or 16 bytes in network order, or NULL.
   */
  const uint8_t *address;
  /**
   * How many bytes that has.
   */
  size_t address_len;
} ff_ingress_peer;

/**
 * What a link gets.
 */
typedef struct ff_ingress_decision {
  /**
   * Why.
   */
  enum ff_ingress_reason reason;
  /**
   * Whether it is exempt.
   */
  bool is_exempt;
  /**
   * Whether it has a bucket of its own, which an exempt link may have, too.
   */
  bool has_bucket;
  /**
   * Bytes per second in each direction, if it has: 1 to INT32_MAX.
   */
  uint32_t rate;
  /**
   * Bytes that it may save, if it has: 1 to INT32_MAX.
   */
  uint32_t burst;
} ff_ingress_decision;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The library's version.
 */
const char *ff_library_version(void);

/**
 * What a status means, for people.
 */
const char *ff_status_text(uint32_t status);

/**
 * Checks options without taking them.
 *
 * When one is bad, `error` gets a text that says what is allowed; it may be NULL.
 *
 * # Safety
 * `options` has `count` elements, their texts end with NUL, and `error` has room for `error_len`
 * bytes.
 */
enum ff_status ff_options_check(const struct ff_option *options,
                                size_t count,
                                char *error,
                                size_t error_len);

/**
 * Makes a target. Without options it refuses every request.
 *
 * With a `memory_path`, the library reads earlier measurements from that file and writes new ones
 * into it, `memory` then is to be NULL. Without one it opens no files: `memory` is the text of
 * the last FF_OUTPUT_KIND_STORE, or NULL if there never was one. Lines of it that are damaged or too
 * many are not used; then the first outputs tell the operator and, without a path, have the rest
 * stored. When the file cannot be read, `error` gets a text that says so; `error` may be NULL.
 *
 * # Safety
 * The texts are NULL or end with NUL, `error` has room for `error_len` bytes, and `target` for a
 * pointer.
 */
enum ff_status ff_target_new(const char *memory_path,
                             const char *memory,
                             char *error,
                             size_t error_len,
                             struct ff_target **target);

/**
 * Frees a target; NULL is allowed. Circuits are not the target's and stay.
 *
 * # Safety
 * `target` is NULL or from `ff_target_new`, and nobody uses it any more.
 */
void ff_target_free(struct ff_target *target);

/**
 * Takes the operator's options in place of all earlier ones, or none of them when one is bad.
 *
 * What is not among them comes from the consensus or has its default. Of options with the same
 * name, the last counts. A measurement that is going on keeps what it was granted, and ends when it
 * would not be granted any more: look at `ff_target_poll_output` afterwards. When an option is bad,
 * `error` gets a text that says what is allowed; it may be NULL.
 *
 * # Safety
 * `target` is NULL or valid, `options` has `count` elements, their texts end with NUL, and `error`
 * has room for `error_len` bytes.
 */
enum ff_status ff_target_set_options(struct ff_target *target,
                                     const struct ff_option *options,
                                     size_t count,
                                     uint64_t now_micros,
                                     char *error,
                                     size_t error_len);

/**
 * Takes a new consensus's parameters in place of all earlier ones.
 *
 * Leave out what the consensus does not have. A measurement may end by it, as by new options. Values
 * out of bounds are cut to them, and names that are not an option's are ignored.
 *
 * # Safety
 * `target` is NULL or valid, `params` has `count` elements, and their names end with NUL.
 */
enum ff_status ff_target_set_params(struct ff_target *target,
                                    const struct ff_param *params,
                                    size_t count,
                                    uint64_t now_micros);

/**
 * Takes a MEASUREMENT cell, from any link.
 *
 * # Safety
 * `target` and `arrival` are NULL or valid, and the arrival's pointers are NULL or have as many
 * bytes as their fields say.
 */
enum ff_status ff_target_handle_control(struct ff_target *target,
                                        const struct ff_arrival *arrival);

/**
 * Notes that a link is gone. To be called for every link that has brought a MEASUREMENT cell;
 * for others it does nothing.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_handle_link_closed(struct ff_target *target,
                                            uint64_t link,
                                            uint64_t now_micros);

/**
 * Notes the time. To be called when that of `ff_target_poll_timeout` has come; earlier does no
 * harm.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_handle_timeout(struct ff_target *target,
                                        uint64_t now_micros);

/**
 * Ends the measurement that is going on, if any, because of something inside the relay.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_abort(struct ff_target *target, uint64_t now_micros);

/**
 * When `ff_target_handle_timeout` is due, in the microseconds of `now_micros`; FF_NO_TIMEOUT
 * when nothing is. It may change with every other call.
 *
 * # Safety
 * `target` is NULL or valid.
 */
uint64_t ff_target_poll_timeout(const struct ff_target *target);

/**
 * Takes the next thing that the relay must do; FF_OUTPUT_KIND_NONE when there is nothing more.
 *
 * # Safety
 * `target` is NULL or valid, and `output` is NULL or has room for one.
 */
enum ff_status ff_target_poll_output(struct ff_target *target,
                                     struct ff_output *output);

/**
 * Whether no measurement is granted or running.
 *
 * # Safety
 * `target` is NULL or valid.
 */
bool ff_target_is_idle(const struct ff_target *target);

/**
 * Whether the relay takes part in measurements, by the options and parameters that it has.
 *
 * # Safety
 * `target` is NULL or valid.
 */
bool ff_target_is_allowed(const struct ff_target *target);

/**
 * Whether there was an internal error, so that the target is out of service.
 *
 * # Safety
 * `target` is NULL or valid.
 */
bool ff_target_has_failed(const struct ff_target *target);

/**
 * Says what the relay has been through; a target that is out of service remembers it, too.
 *
 * # Safety
 * `target` is NULL or valid, and `totals` is NULL or has room for them.
 */
enum ff_status ff_target_totals(const struct ff_target *target,
                                struct ff_totals *totals);

/**
 * Counts cells that were echoed on circuits of one measurer, as `ff_circuit_measurer` has it. To be
 * called once for as many of its cells as came at once; the first call starts the measurement.
 *
 * What has not been counted when the measurement ends is missing in what the relay reports, and
 * makes the measurer look like a liar. So cells that have gone out are to be counted before
 * `ff_target_handle_timeout`, and before the other calls that may end the measurement.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_on_echoed(struct ff_target *target,
                                   uint8_t measurer,
                                   uint64_t cells,
                                   uint64_t now_micros);

/**
 * Counts bytes that moved and were not measurement traffic: neither on a measurement link nor on
 * the coordinator's. To be called also when nothing is measured, because a measurement leaves
 * clients what they had before.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_on_background(struct ff_target *target,
                                       uint64_t sent_bytes,
                                       uint64_t received_bytes,
                                       uint64_t now_micros);

/**
 * Counts that background traffic had to wait because its allowance was used up.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_status ff_target_on_background_wait(struct ff_target *target);

/**
 * Says how much background traffic may move now.
 *
 * # Safety
 * `target` is NULL or valid, and `allowance` is NULL or has room for one.
 */
enum ff_status ff_target_background_allowance(const struct ff_target *target,
                                              struct ff_allowance *allowance);

/**
 * Whether a link from this address is to be let past the relay's denial-of-service defences: it
 * is a measurer's of the measurement that is granted or running, from which not as many have come
 * yet as it was announced with (`ff_target_use_exemption`).
 *
 * `address` has 4 bytes (IPv4) or 16 (IPv6) in network order; with any other length, and for
 * NULL, the answer is no.
 *
 * # Safety
 * `target` is NULL or valid, and `address` is NULL or has `len` bytes.
 */
bool ff_target_is_exempt(const struct ff_target *target,
                         const uint8_t *address,
                         size_t len);

/**
 * Notes that a link has come from this address, given as for `ff_target_is_exempt`. Returns
 * whether it was one to be let past the defences; each measurer has as many as it was announced
 * with.
 *
 * # Safety
 * `target` is NULL or valid, and `address` is NULL or has `len` bytes.
 */
bool ff_target_use_exemption(struct ff_target *target,
                             const uint8_t *address,
                             size_t len);

/**
 * A link's part in the measurement that is granted or running, or in one that has just ended.
 *
 * # Safety
 * `target` is NULL or valid.
 */
enum ff_part ff_target_part_of(const struct ff_target *target,
                               uint64_t link);

/**
 * The circuit id that the circuit's MEAS_ECHO cells must have; 0 for NULL.
 *
 * # Safety
 * `circuit` is NULL or valid.
 */
uint32_t ff_circuit_id(const struct ff_circuit *circuit);

/**
 * Whose circuit it is: the measurer's index for `ff_target_on_echoed`, less than
 * FF_MEASURERS_MAX. It stays the same; 0 for NULL.
 *
 * # Safety
 * `circuit` is NULL or valid.
 */
uint8_t ff_circuit_measurer(const struct ff_circuit *circuit);

/**
 * The cipher of a circuit; FF_CRYPTO_KIND_NONE for NULL.
 *
 * # Safety
 * `circuit` is NULL or valid.
 */
enum ff_crypto_kind ff_circuit_crypto(const struct ff_circuit *circuit);

/**
 * Copies a circuit's forward key to `key`.
 *
 * It is for relays that decrypt MEAS_ECHO cells with their own relay crypto, so that an echoed
 * cell costs what a forwarded one does. Such a relay starts its cipher with this key, lets every
 * cell pass through it in the order in which the link brings them, counts each of them by
 * `ff_target_on_echoed`, and calls `ff_circuit_echo` for none. It wipes its copy of the key.
 *
 * `len` must be exactly FF_KEY_LEN_AES128_CTR or FF_KEY_LEN_CGO_AES128, as the circuit's cipher
 * has it, or the status is FF_STATUS_BAD_LENGTH. Nothing is written without FF_STATUS_OK.
 *
 * # Safety
 * `circuit` is NULL or valid, and `key` is NULL or has room for `len` bytes.
 */
enum ff_status ff_circuit_forward_key(const struct ff_circuit *circuit,
                                      uint8_t *key,
                                      size_t len);

/**
 * Decrypts the body of a MEAS_ECHO cell in place; the cell then is its own answer.
 *
 * It neither allocates nor locks, and touches nothing but the circuit and the body. Cells must
 * come in the order in which the link brings them.
 *
 * # Safety
 * `circuit` is NULL or valid, and `body` is NULL or has FF_BODY_LEN bytes.
 */
enum ff_status ff_circuit_echo(struct ff_circuit *circuit,
                               uint8_t *body);

/**
 * Frees a circuit; NULL is allowed. To be called when its link closes.
 *
 * # Safety
 * `circuit` is NULL or from FF_OUTPUT_KIND_OPEN, and nobody uses it any more.
 */
void ff_circuit_free(struct ff_circuit *circuit);

/**
 * Checks the options of the limit where clients enter: those that begin with FFIngress,
 * PerConnBWRate and PerConnBWBurst. The last two are numbers of bytes without a unit.
 *
 * When one is bad, `error` gets a text that says what is allowed; it may be NULL. Without
 * `is_whole`, PerConnBWRate and PerConnBWBurst are left out, and so is what depends on them.
 *
 * # Safety
 * `options` has `count` elements, their texts end with NUL, and `error` has room for
 * `error_len` bytes.
 */
enum ff_status ff_ingress_check(const struct ff_option *options,
                                size_t count,
                                bool is_whole,
                                char *error,
                                size_t error_len);

/**
 * Makes rules of options, which `ff_ingress_check` has taken, and of parameters of a consensus.
 * Parameters that are out of bounds are not taken.
 *
 * # Safety
 * `options` and `params` have as many elements as said, their texts end with NUL, and
 * `ingress` has room for a pointer.
 */
enum ff_status ff_ingress_new(const struct ff_option *options,
                              size_t option_count,
                              const struct ff_param *params,
                              size_t param_count,
                              struct ff_ingress **ingress);

/**
 * Frees rules; NULL is allowed.
 *
 * # Safety
 * `ingress` is NULL or from `ff_ingress_new`, and nobody uses it after this.
 */
void ff_ingress_free(struct ff_ingress *ingress);

/**
 * Whether there are rules; without, the relay's own hold for all links.
 *
 * # Safety
 * `ingress` is NULL or valid.
 */
bool ff_ingress_is_on(const struct ff_ingress *ingress);

/**
 * Whether both have the same rules.
 *
 * # Safety
 * Both are NULL or valid.
 */
bool ff_ingress_is_same(const struct ff_ingress *left, const struct ff_ingress *right);

/**
 * The rules for the operator, without addresses; empty when there are none. Valid until
 * `ff_ingress_free`; "" for NULL.
 *
 * # Safety
 * `ingress` is NULL or valid.
 */
const char *ff_ingress_text(const struct ff_ingress *ingress);

/**
 * What was not taken of the consensus, and why; empty when all was. Valid until
 * `ff_ingress_free`; "" for NULL.
 *
 * # Safety
 * `ingress` is NULL or valid.
 */
const char *ff_ingress_ignored(const struct ff_ingress *ingress);

/**
 * Says what a link gets.
 *
 * # Safety
 * `ingress`, `peer` and `decision` are NULL or valid, and the peer's address is NULL or has as
 * many bytes as said.
 */
enum ff_status ff_ingress_decide(const struct ff_ingress *ingress,
                                 const struct ff_ingress_peer *peer,
                                 struct ff_ingress_decision *decision);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FF_RELAY_EXT_H */
