/**
 * @file flashflow.c
 * @brief Lets a relay be measured by FlashFlow: drives the library's state machine.
 *
 * The library (ff_relay_ext.h) decides everything that the protocol is about. Here is what only
 * tor can do: give it the cells of a link, do what it asks for, and take echoed cells the way of
 * forwarded ones, through a circuit's queue and the scheduler, so that they cost as much.
 **/

#define CHANNEL_OBJECT_PRIVATE
#include "core/or/or.h"

#include "app/config/config.h"
#include "core/crypto/relay_crypto.h"
#include "core/mainloop/connection.h"
#include "core/mainloop/mainloop.h"
#include "core/or/channel.h"
#include "core/or/channeltls.h"
#include "core/or/circuitlist.h"
#include "core/or/connection_or.h"
#include "core/or/relay.h"
#include "feature/flashflow/ff_relay_ext.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/nodelist/networkstatus.h"
#include "lib/crypt_ops/crypto_rand.h"
#include "lib/crypt_ops/crypto_util.h"
#include "lib/evloop/compat_libevent.h"
#include "lib/evloop/token_bucket.h"
#include "lib/metrics/metrics_store.h"
#include "lib/time/compat_time.h"
#include "lib/tls/tortls.h"

#include "core/or/cell_st.h"
#include "core/or/cell_queue_st.h"
#include "core/or/or_circuit_st.h"
#include "core/or/or_connection_st.h"

#include <event2/event.h>

/** What all measurement links may have queued together, in bytes of cells. */
#define QUEUED_BYTES_MAX (16 << 20)
/** The part of a second's traffic that they may: KIST runs every 10 ms, and token buckets that were
 * empty wait for 100 ms, so with less the queues would run dry. More would only cost memory. */
#define QUEUED_PART_OF_SECOND 8
/** What each of them may have queued at least: a record of the measurer's. */
#define QUEUED_BYTES_MIN 4112
/** What one read can bring after we have asked for no more, in cells. */
#define READ_CELLS_MAX 64
/** Cells that are echoed before the library hears of them, at most. */
#define ECHOED_CELLS_MAX 128
/** How often we look whether clients have something to be read, in microseconds. */
#define ORDER_MICROS 100000
/** They have, when of so many echoed bytes one is theirs. */
#define ECHOED_PER_CLIENT_BYTE 128
/** Of the three priorities that the hook `priorities` gives libevent, that of tor's events. */
#define EVENT_PRIORITY_USUAL 1
/** And one for what comes behind them. */
#define EVENT_PRIORITY_LAST 2

/** A link that has brought a MEASUREMENT cell. */
typedef struct flashflow_link_t {
  /** Its number; no other link has it, ever. */
  uint64_t id;
  /** Its connection. */
  or_connection_t *conn;
  /** The measurement circuit, as the library has it; NULL until there is one. Ours to free. */
  ff_circuit *circuit;
  /** The measurement circuit's id. */
  circid_t circ_id;
  /** Whether the measurement that is going on was asked for here. */
  bool is_coordinator;
  /** Whether we do not read from it because too much is queued for it. */
  bool is_paused;
  /** Whether it has EVENT_PRIORITY_LAST. */
  bool is_last;
} flashflow_link_t;

/** The library's state; NULL when this relay does not take part. */
static ff_target *target;
/** Whether a measurement is granted or running. */
static bool is_measuring;
/** All links that have brought a MEASUREMENT cell: flashflow_link_t. */
static smartlist_t *links;
/** How many of them have a measurement circuit. */
static int n_circuits;
/** How many bytes each of these may have queued now. */
static size_t queue_limit;
/** The most that may ever be: tor closes circuits whose queues are longer still. */
static size_t queue_limit_max;
/** When the second began that is being counted, in microseconds. */
static uint64_t second_micros;
/** Bytes echoed in it, and in the second before. */
static uint64_t bytes_this_second, bytes_last_second;
/** Cells echoed that the library has not heard of. */
static uint64_t n_echoed;
/** Runs when the library wants to be called. */
static mainloop_event_t *timeout_event;
/** For when that is scheduled, in microseconds; FF_NO_TIMEOUT when it is not. */
static uint64_t scheduled_micros = FF_NO_TIMEOUT;
/** Whether others are read from before measurement links. */
static bool clients_first;
/** Since when the two below are counted, in microseconds. */
static uint64_t order_micros;
/** Bytes echoed, and bytes read from others. */
static uint64_t order_echoed, order_background;
/** Runs once for all cells that one round of the main loop has echoed: it has the priority of the
 * reading from measurement links, and comes behind what is to be read already. */
static struct event *echoed_event;
/** What the MetricsPort shows; NULL before it was asked. */
static metrics_store_t *metrics;
/** A list of that. */
static smartlist_t *metrics_stores;

static void drain_outputs(void);

/** The library's clock. */
static uint64_t
now_micros(void)
{
  return monotime_absolute_usec();
}

/** Finds out how many bytes each measurement link may have queued. */
static void
update_queue_limit(void)
{
  uint64_t bytes = MAX(bytes_this_second, bytes_last_second) / QUEUED_PART_OF_SECOND;
  size_t share = (size_t) MIN(bytes, QUEUED_BYTES_MAX) / (size_t) MAX(n_circuits, 1);
  queue_limit = MIN(MAX(share, QUEUED_BYTES_MIN), queue_limit_max);
}

/** Finds out how long a circuit's queue may be. */
static void
update_queue_limit_max(void)
{
  int32_t cells =
    networkstatus_get_param(NULL, "circ_max_cell_queue_size", 2500, 50, INT32_MAX);
  queue_limit_max = (size_t) MAX(cells - READ_CELLS_MAX, cells / 2) * FF_CELL_LEN;
  update_queue_limit();
}

/** Counts echoed bytes: with the traffic, the queues may grow. */
static void
note_rate(uint64_t bytes, uint64_t now)
{
  const uint64_t second = 1000000;
  if (now - second_micros >= second) {
    bytes_last_second = now - second_micros < 2 * second ? bytes_this_second : 0;
    bytes_this_second = 0;
    second_micros = now;
  }
  bytes_this_second += bytes;
  update_queue_limit();
}

/** Decides which links are read from first. Measurement links are many and always have something:
 * clients with a few links, on a relay without CPU to spare, would be left with little of their
 * share. They can go first, because what they may have is limited. Without clients the order stays
 * that of forwarded cells: in the other one an echoed cell costs less than a forwarded one. */
static void
decide_order(uint64_t echoed, uint64_t now)
{
  order_echoed += echoed;
  if (now - order_micros < ORDER_MICROS)
    return;
  clients_first = order_background * ECHOED_PER_CLIENT_BYTE >= order_echoed;
  order_micros = now;
  order_echoed = order_background = 0;
}

/** Has the library called when it wants to be. */
static void
schedule_timeout(void)
{
  uint64_t due = ff_target_poll_timeout(target);
  if (due == scheduled_micros)
    return;
  scheduled_micros = due;
  if (due == FF_NO_TIMEOUT) {
    mainloop_event_cancel(timeout_event);
    return;
  }
  uint64_t now = now_micros();
  uint64_t wait = due > now ? due - now : 0;
  struct timeval delay = { .tv_sec = (time_t) (wait / 1000000),
                           .tv_usec = (int) (wait % 1000000) };
  mainloop_event_schedule(timeout_event, &delay);
}

/** Callback of <b>timeout_event</b>. */
static void
timeout_cb(mainloop_event_t *event, void *arg)
{
  (void) event;
  (void) arg;
  scheduled_micros = FF_NO_TIMEOUT;
  (void) ff_target_handle_timeout(target, now_micros());
  drain_outputs();
}

/** Tells the library of the cells echoed since it heard last. */
static void
report_echoed(void)
{
  uint64_t cells = n_echoed;
  n_echoed = 0;
  if (!cells || !target)
    return;
  uint64_t now = now_micros();
  note_rate(cells * FF_CELL_LEN, now);
  decide_order(cells * FF_CELL_LEN, now);
  (void) ff_target_on_echoed(target, cells, now);
  drain_outputs();
}

/** Callback of <b>echoed_event</b>. */
static void
echoed_cb(evutil_socket_t fd, short what, void *arg)
{
  (void) fd;
  (void) what;
  (void) arg;
  report_echoed();
}

/* ---- Start and end -------------------------------------------------------------------------- */

/** Gives the library the options in force. */
static void
apply_options(void)
{
  flashflow_option_list_t list;
  char error[256] = "";
  flashflow_get_options(&list);
  if (ff_target_set_options(target, list.option, list.count,
                            error, sizeof(error)) != FF_STATUS_OK)
    log_warn(LD_CONFIG, "FlashFlow: %s", error);
  flashflow_option_list_clear(&list);
  flashflow_exact_buckets = flashflow_is_allowed();
}

/** Makes the target, which remembers the measurements <b>granted</b>.
 * Returns -1, having said so in the log, when it cannot. */
int
flashflow_start(const char *granted)
{
  char error[256] = "";
  if (ff_target_new(NULL, granted, error, sizeof(error), &target)
        != FF_STATUS_OK) {
    log_warn(LD_GENERAL, "FlashFlow: this relay cannot be measured: the FFGranted lines of "
             "the state file: %s", error);
    target = NULL;
    return -1;
  }
  links = smartlist_new();
  timeout_event = mainloop_event_new(timeout_cb, NULL);
  echoed_event = tor_event_new(tor_libevent_get_base(), -1, 0, echoed_cb, NULL);
  apply_options();
  return 0;
}

/** Frees a link. */
static void
link_free(flashflow_link_t *link)
{
  if (link->circuit)
    --n_circuits;
  ff_circuit_free(link->circuit);
  tor_free(link);
}

/** Frees all that flashflow_start() has made. */
void
flashflow_stop(void)
{
  if (!target)
    return;
  ff_target_free(target);
  target = NULL;
  is_measuring = false;
  flashflow_exact_buckets = 0;
  bytes_this_second = bytes_last_second = second_micros = n_echoed = 0;
  order_micros = order_echoed = order_background = 0;
  clients_first = false;
  scheduled_micros = FF_NO_TIMEOUT;
  SMARTLIST_FOREACH(links, flashflow_link_t *, link, link_free(link));
  smartlist_free(links);
  mainloop_event_free(timeout_event);
  tor_event_free(echoed_event);
  metrics_store_free(metrics);
  smartlist_free(metrics_stores);
}

/** Takes the options that have just come into force. */
void
flashflow_options_changed(void)
{
  if (target)
    apply_options();
}

/** Gives the library the parameters of the consensus. */
static void
apply_params(void)
{
  static const char *const names[] = {
    "FFMeasurementsAllowed", "FFMeasurementPeriod",
    "FFBackgroundTrafficPercent", "FFMaxMeasurementDuration",
  };
  ff_param params[ARRAY_LENGTH(names)];
  size_t count = 0;
  for (size_t i = 0; i < ARRAY_LENGTH(names); ++i) {
    int32_t value =
      networkstatus_get_param(NULL, names[i], INT32_MIN, INT32_MIN, INT32_MAX);
    if (value == INT32_MIN)
      continue;
    params[count].name = names[i];
    params[count++].value = value;
  }
  (void) ff_target_set_params(target, params, count);
  flashflow_exact_buckets = flashflow_is_allowed();
}

/* ---- What the library asks for --------------------------------------------------------------- */

/** The link with this number, or NULL if it is gone or about to be. */
static flashflow_link_t *
link_by_id(uint64_t id)
{
  SMARTLIST_FOREACH_BEGIN(links, flashflow_link_t *, link) {
    if (link->id == id)
      return TO_CONN(link->conn)->marked_for_close ? NULL : link;
  } SMARTLIST_FOREACH_END(link);
  return NULL;
}

/** Writes a cell to the link, past the circuits' queues: what the relay answers must not be
 * overtaken by its answer to a later cell. */
static void
send_cell(flashflow_link_t *link, const uint8_t *bytes)
{
  cell_t cell;
  memset(&cell, 0, sizeof(cell));
  cell.circ_id = ntohl(get_uint32(bytes));
  cell.command = bytes[4];
  memcpy(cell.payload, bytes + 5, sizeof(cell.payload));
  connection_or_write_cell_to_buf(&cell, link->conn);
}

/** Gives <b>circ</b> the keys of <b>circuit</b>, as if the measurer were a client that had built a
 * circuit. Nobody knows the keys for the other direction, nor what a cell for this relay would look
 * like: should the peer send RELAY cells, they are not recognised and end the circuit. */
static int
set_circuit_keys(or_circuit_t *circ, const ff_circuit *circuit)
{
  const bool is_cgo = ff_circuit_crypto(circuit) == FF_CRYPTO_KIND_CGO_AES128;
  const relay_crypto_alg_t alg =
    is_cgo ? RELAY_CRYPTO_ALG_CGO_RELAY : RELAY_CRYPTO_ALG_TOR1;
  /* With CGO, the forward direction's keys come first; otherwise those of the two digests do. */
  const size_t offset = is_cgo ? 0 : 2 * DIGEST_LEN;
  const size_t key_len = is_cgo ? FF_KEY_LEN_CGO_AES128 : FF_KEY_LEN_AES128_CTR;
  const ssize_t len = relay_crypto_key_material_len(alg);
  char keys[MAX_RELAY_KEY_MATERIAL_LEN];
  int r = -1;
  crypto_rand(keys, sizeof(keys));
  if (len > 0 && (size_t) len <= sizeof(keys) && offset + key_len <= (size_t) len &&
      ff_circuit_forward_key(circuit, (uint8_t *) keys + offset, key_len) == FF_STATUS_OK)
    r = relay_crypto_init(alg, &circ->crypto, keys, (size_t) len);
  memwipe(keys, 0, sizeof(keys));
  return r;
}

/** Gives the link a circuit for echoed cells. */
static int
open_circuit(flashflow_link_t *link, const ff_circuit *circuit)
{
  channel_t *chan = TLS_CHAN_TO_BASE(link->conn->chan);
  circid_t circ_id = ff_circuit_id(circuit);
  if (circuit_id_in_use_on_channel(circ_id, chan))
    return -1;
  or_circuit_t *circ = or_circuit_new(circ_id, chan);
  circuit_set_state(TO_CIRCUIT(circ), CIRCUIT_STATE_OPEN);
  TO_CIRCUIT(circ)->purpose = CIRCUIT_PURPOSE_OR;
  if (set_circuit_keys(circ, circuit) < 0) {
    circuit_mark_for_close(TO_CIRCUIT(circ), END_CIRC_REASON_INTERNAL);
    return -1;
  }
  /* tor ends circuits of clients on channels over which nothing has been sent for a minute, and so
   * far nothing has. */
  channel_timestamp_xmit(chan);
  link->circ_id = circ_id;
  return 0;
}

/** Makes the link a measurement link. Takes <b>circuit</b>. */
static void
open_link(flashflow_link_t *link, ff_circuit *circuit)
{
  if (!link || link->circuit || !link->conn->chan ||
      open_circuit(link, circuit) < 0) {
    ff_circuit_free(circuit);
    if (link)
      connection_or_close_for_error(link->conn, 0);
    return;
  }
  link->circuit = circuit;
  ++n_circuits;
  update_queue_limit_max();
  /* Measured traffic is bound by the relay's limits wherever it comes from, but not by those for
   * single clients. */
  TO_CONN(link->conn)->always_rate_limit_as_remote = 1;
  token_bucket_rw_adjust(&link->conn->bucket,
                         (int) get_options()->BandwidthRate,
                         (int) get_options()->BandwidthBurst);
  token_bucket_rw_reset(&link->conn->bucket, monotime_coarse_get_stamp());
}

/** Writes to the log. */
static void
tell(ff_level level, const char *text)
{
  int severity = level == FF_LEVEL_WARN ? LOG_WARN :
    level == FF_LEVEL_NOTICE ? LOG_NOTICE : LOG_INFO;
  log_fn(severity, LD_GENERAL, "FlashFlow: %s", text);
}

/** Does one thing that the library asks for. */
static void
perform(const ff_output *output)
{
  flashflow_link_t *link = output->link ? link_by_id(output->link) : NULL;
  switch (output->kind) {
    case FF_OUTPUT_KIND_SEND:
      if (link)
        send_cell(link, output->cell);
      break;
    case FF_OUTPUT_KIND_OPEN:
      open_link(link, output->circuit);
      break;
    case FF_OUTPUT_KIND_CLOSE:
      if (link)
        connection_or_close_normally(link->conn, 1);
      break;
    case FF_OUTPUT_KIND_TELL:
      tell(output->level, output->text);
      break;
    case FF_OUTPUT_KIND_STORE:
      if (flashflow_save_granted(output->text) < 0) {
        log_warn(LD_FS, "FlashFlow: the measurement is off, because the state file cannot be "
                 "written: it might be forgotten and allowed again.");
        (void) ff_target_abort(target, now_micros());
      }
      break;
    case FF_OUTPUT_KIND_NONE:
    default:
      break;
  }
}

/** Does all that the library asks for. */
static void
drain_outputs(void)
{
  ff_output output;
  while (ff_target_poll_output(target, &output) == FF_STATUS_OK &&
         output.kind != FF_OUTPUT_KIND_NONE)
    perform(&output);
  memwipe(&output, 0, sizeof(output));
  is_measuring = !ff_target_is_idle(target);
  if (!is_measuring) {
    SMARTLIST_FOREACH(links, flashflow_link_t *, link, link->is_coordinator = false);
    clients_first = false;
  }
  schedule_timeout();
}

/* ---- Cells ---------------------------------------------------------------------------------- */

/** The link's record, made if it is not there yet. */
static flashflow_link_t *
link_of(or_connection_t *conn)
{
  if (!conn->flashflow_link) {
    flashflow_link_t *link = tor_malloc_zero(sizeof(*link));
    link->id = TO_CONN(conn)->global_identifier;
    link->conn = conn;
    smartlist_add(links, link);
    conn->flashflow_link = link;
  }
  return conn->flashflow_link;
}

/** Handles a MEASUREMENT cell. */
static void
handle_control(const cell_t *cell, or_connection_t *conn)
{
  flashflow_link_t *link = link_of(conn);
  uint8_t exporter[DIGEST256_LEN];
  uint8_t entropy[FF_SECRET_LEN];
  ff_totals before, after;
  if (tor_tls_export_key_material(conn->tls, exporter, (const uint8_t *) "", 0,
                                  FF_EXPORTER_LABEL) < 0) {
    log_info(LD_PROTOCOL, "FlashFlow: no secret can be had of the TLS connection.");
    connection_or_close_for_error(conn, 0);
    return;
  }
  crypto_rand((char *) entropy, sizeof(entropy));
  ff_arrival arrival = {
    .link = link->id,
    .circ_id = cell->circ_id,
    .body = cell->payload,
    .exporter = exporter,
    .entropy = entropy,
    .now_micros = now_micros(),
    .unix_secs = (uint64_t) time(NULL),
  };
  report_echoed();
  apply_params();
  memset(&before, 0, sizeof(before));
  memset(&after, 0, sizeof(after));
  (void) ff_target_totals(target, &before);
  (void) ff_target_handle_control(target, &arrival);
  (void) ff_target_totals(target, &after);
  if (after.granted > before.granted)
    link->is_coordinator = true;
  memwipe(exporter, 0, sizeof(exporter));
  memwipe(entropy, 0, sizeof(entropy));
  drain_outputs();
}

/** How many bytes are queued for the link. */
static size_t
queued_bytes(const flashflow_link_t *link, const circuit_t *circ)
{
  size_t cells = 0;
  if (circ && !CIRCUIT_IS_ORIGIN(circ))
    cells = (size_t) CONST_TO_OR_CIRCUIT(circ)->p_chan_cells.n;
  return cells * FF_CELL_LEN + connection_get_outbuf_len(TO_CONN(link->conn));
}

/** Stops reading from a link that does not take what it is owed. The read is not one that waits
 * for bandwidth: that would begin again by itself. */
static void
pause_link(flashflow_link_t *link)
{
  connection_t *conn = TO_CONN(link->conn);
  link->is_paused = true;
  conn->read_blocked_on_bw = 0;
  connection_stop_reading(conn);
}

/** Does with a cell what is done with one that is forwarded, except that it goes back over the
 * link it has come from. Returns its circuit, or NULL if that cannot be. */
static const circuit_t *
echo_cell(cell_t *cell, channel_t *chan)
{
  circuit_t *circ = circuit_get_by_circid_channel(cell->circ_id, chan);
  crypt_path_t *layer_hint = NULL;
  char recognized = 0;
  if (!circ || circ->marked_for_close ||
      relay_decrypt_cell(circ, cell, CELL_DIRECTION_OUT, &layer_hint, &recognized) < 0)
    return NULL;
#ifdef FLASHFLOW_DIRECT_ECHO
  /* Only to show what the queue and the scheduler cost. */
  connection_or_write_cell_to_buf(cell, BASE_CHAN_TO_TLS(chan)->conn);
  channel_timestamp_xmit(chan);
#else
  if (append_cell_to_circuit_queue(circ, chan, cell, CELL_DIRECTION_IN, 0) < 0)
    return NULL;
#endif
  return circ;
}

/** The priority of measurement links. */
static int
link_priority(void)
{
  return clients_first ? EVENT_PRIORITY_LAST : EVENT_PRIORITY_USUAL;
}

/** Gives the link the priority that such links now have. */
static void
set_order(flashflow_link_t *link)
{
  link->is_last = clients_first;
  (void) event_priority_set(TO_CONN(link->conn)->read_event, link_priority());
}

/** Has the library told of echoed cells once what is to be read now has been read. */
static void
report_soon(void)
{
  (void) event_priority_set(echoed_event, link_priority());
  event_active(echoed_event, EV_TIMEOUT, 1);
}

/** Handles a MEAS_ECHO cell. */
static void
handle_echo(cell_t *cell, or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  const circuit_t *circ = NULL;
  if (link && link->circuit && cell->circ_id == link->circ_id)
    circ = echo_cell(cell, TLS_CHAN_TO_BASE(conn->chan));
  if (!circ) {
    log_info(LD_PROTOCOL, "FlashFlow: a MEAS_ECHO cell on a link or circuit without a "
             "measurement. Closing the link.");
    connection_or_close_for_error(conn, 0);
    return;
  }
  if (link->is_last != clients_first)
    set_order(link);
  if (n_echoed++ == 0)
    report_soon();
  else if (n_echoed >= ECHOED_CELLS_MAX)
    report_echoed();
  if (!link->is_paused && queued_bytes(link, circ) >= queue_limit)
    pause_link(link);
}

/** Handles <b>cell</b>, if it is one of ours and this relay takes part in measurements. Returns
 * whether it was. */
bool
flashflow_handle_cell(cell_t *cell, or_connection_t *conn)
{
  if (!target || TO_CONN(conn)->state != OR_CONN_STATE_OPEN ||
      !(is_measuring || flashflow_is_allowed()))
    return false;
  switch (cell->command) {
    case FF_CMD_MEAS_ECHO:
      handle_echo(cell, conn);
      return true;
    case FF_CMD_MEASUREMENT:
      handle_control(cell, conn);
      return true;
    default:
      return false;
  }
}

/** Notes that some bytes have gone out to <b>conn</b>. */
void
flashflow_flushed_some(or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  if (!link || !link->is_paused || !conn->chan ||
      TO_CONN(conn)->marked_for_close)
    return;
  const circuit_t *circ =
    circuit_get_by_circid_channel(link->circ_id, TLS_CHAN_TO_BASE(conn->chan));
  if (queued_bytes(link, circ) > queue_limit / 2)
    return;
  link->is_paused = false;
  connection_start_reading(TO_CONN(conn));
}

/** Notes that <b>conn</b> is about to be freed. */
void
flashflow_about_to_close(or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  if (!link || !target)
    return;
  conn->flashflow_link = NULL;
  smartlist_remove(links, link);
  report_echoed();
  (void) ff_target_handle_link_closed(target, link->id, now_micros());
  link_free(link);
  update_queue_limit();
  drain_outputs();
}

/* ---- Everybody else's traffic ----------------------------------------------------------------- */

/** Whether bytes of <b>conn</b> count as background now. */
static bool
is_background(const connection_t *conn)
{
  if (conn->type != CONN_TYPE_OR)
    return true;
  const flashflow_link_t *link =
    CONST_TO_OR_CONN(conn)->flashflow_link;
  return !link || !(link->circuit || link->is_coordinator);
}

/** Puts into <b>allowance</b> what background may move. Returns whether there is a limit. */
static bool
get_allowance(ff_allowance *allowance)
{
  return is_measuring &&
    ff_target_background_allowance(target, allowance) == FF_STATUS_OK &&
    allowance->is_limited;
}

/** Of <b>bytes</b> that are in the relay's bucket, how many <b>conn</b> may move while background
 * may move <b>share</b>. What background has not used yet stays there for it: tor shares a bucket
 * out by connections, and a relay may have fewer for its clients than measurers have. */
static size_t
limit_to_share(const connection_t *conn, size_t bytes, uint64_t share)
{
  size_t kept = (size_t) MIN((uint64_t) bytes, share);
  return is_background(conn) ? kept : bytes - kept;
}

/** How many bytes a measurement link may read before too much is queued for it: a cell at least. */
static size_t
room_of(const flashflow_link_t *link)
{
  const circuit_t *circ =
    circuit_get_by_circid_channel(link->circ_id, TLS_CHAN_TO_BASE(link->conn->chan));
  size_t queued = queued_bytes(link, circ);
  return queued + FF_CELL_LEN < queue_limit ? queue_limit - queued : FF_CELL_LEN;
}

/** Of <b>bytes</b> that <b>conn</b> might read, how many it may. */
size_t
flashflow_limit_read(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!get_allowance(&allowance))
    return bytes;
  return limit_to_share(conn, bytes, allowance.receive_bytes);
}

/** What a connection may read by the limit of its own, which is <b>bytes</b> or, below zero, none.
 * A measurement link does not read more than there is room for in its queue. */
ssize_t
flashflow_limit_link(const connection_t *conn, ssize_t bytes)
{
  if (!is_measuring || conn->type != CONN_TYPE_OR)
    return bytes;
  const flashflow_link_t *link = CONST_TO_OR_CONN(conn)->flashflow_link;
  if (!link || !link->circuit || !link->conn->chan)
    return bytes;
  ssize_t room = (ssize_t) room_of(link);
  return bytes < 0 ? room : MIN(bytes, room);
}

/** Of <b>bytes</b> that <b>conn</b> might write, how many it may. */
size_t
flashflow_limit_write(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!get_allowance(&allowance))
    return bytes;
  return limit_to_share(conn, bytes, allowance.send_bytes);
}

/** Whether <b>conn</b> must wait before it reads more of the relay's <b>bucket</b>. */
bool
flashflow_must_pause_read(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_read(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(target);
  return true;
}

/** Whether <b>conn</b> must wait before it writes more of the relay's <b>bucket</b>. */
bool
flashflow_must_pause_write(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_write(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(target);
  return true;
}

/** Notes bytes that <b>conn</b> has moved. */
void
flashflow_note_bytes(const connection_t *conn, size_t read, size_t written)
{
  if (!is_measuring || !is_background(conn))
    return;
  order_background += read;
  (void) ff_target_on_background(target, written, read);
}

/** Whether <b>conn</b> is free of the limits for single clients. */
bool
flashflow_lifts_conn_limit(const or_connection_t *conn)
{
  return conn->flashflow_link && conn->flashflow_link->circuit;
}

/** Whether <b>addr</b> is a measurer's of the measurement that is granted or running. */
bool
flashflow_is_measurer(const tor_addr_t *addr)
{
  if (!is_measuring)
    return false;
  uint32_t ipv4;
  switch (tor_addr_family(addr)) {
    case AF_INET:
      ipv4 = tor_addr_to_ipv4n(addr);
      return ff_target_is_exempt(target, (const uint8_t *) &ipv4, 4);
    case AF_INET6:
      return ff_target_is_exempt(target, tor_addr_to_in6_addr8(addr), 16);
    default:
      return false;
  }
}

/* ---- MetricsPort ---------------------------------------------------------------------------- */

/** What the MetricsPort shows. */
const smartlist_t *
flashflow_get_metrics(void)
{
  ff_totals totals;
  if (!target || ff_target_totals(target, &totals) != FF_STATUS_OK)
    return NULL;
  if (!metrics) {
    metrics = metrics_store_new();
    metrics_stores = smartlist_new();
    smartlist_add(metrics_stores, metrics);
  }
  const struct {
    const char *name;
    const char *help;
    uint64_t value;
  } counters[] = {
    { "tor_flashflow_granted_total", "Measurements granted", totals.granted },
    { "tor_flashflow_refused_total", "Requests for a measurement refused", totals.refused },
    { "tor_flashflow_completed_total", "Measurements that ended as planned", totals.completed },
    { "tor_flashflow_failed_total", "Measurements that failed", totals.failed },
    { "tor_flashflow_echoed_bytes_total", "Bytes of cells echoed", totals.echoed_bytes },
    { "tor_flashflow_background_bytes_total",
      "Bytes received from others while measured", totals.background_bytes },
    { "tor_flashflow_background_waits_total",
      "How often others had to wait for their share", totals.background_waits },
  };
  metrics_store_reset(metrics);
  for (size_t i = 0; i < ARRAY_LENGTH(counters); ++i) {
    metrics_store_entry_t *entry =
      metrics_store_add(metrics, METRICS_TYPE_COUNTER, counters[i].name,
                        counters[i].help, 0, NULL);
    metrics_store_entry_update(entry, (int64_t) counters[i].value);
  }
  return metrics_stores;
}
