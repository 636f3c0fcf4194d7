/**
 * @file flashflow.c
 * @brief Lets a relay be measured by FlashFlow: drives the library's state machine.
 *
 * The library (ff_relay_ext.h) decides everything that the protocol is about. Here is what only
 * tor can do: give it the cells of a link, and do what it asks for.
 **/

#define CHANNEL_OBJECT_PRIVATE
#include "core/or/or.h"

#include "app/config/config.h"
#include "core/crypto/relay_crypto.h"
#include "core/mainloop/mainloop.h"
#include "core/or/channel.h"
#include "core/or/channeltls.h"
#include "core/or/circuitlist.h"
#include "core/or/connection_or.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/flashflow/flashflow_private.h"
#include "feature/nodelist/networkstatus.h"
#include "lib/crypt_ops/crypto_rand.h"
#include "lib/crypt_ops/crypto_util.h"
#include "lib/evloop/compat_libevent.h"
#include "lib/evloop/token_bucket.h"
#include "lib/time/compat_time.h"
#include "lib/tls/tortls.h"

#include "core/or/cell_st.h"
#include "core/or/or_circuit_st.h"
#include "core/or/or_connection_st.h"

ff_target *flashflow_target;
bool flashflow_is_measuring;
/** All links that have brought a MEASUREMENT cell: flashflow_link_t. */
static smartlist_t *links;
/** Runs when the library wants to be called. */
static mainloop_event_t *timeout_event;
/** For when that is scheduled, in microseconds; FF_NO_TIMEOUT when it is not. */
static uint64_t scheduled_micros = FF_NO_TIMEOUT;

/** The library's clock. */
uint64_t
flashflow_now_micros(void)
{
  return monotime_absolute_usec();
}

/** Has the library called when it wants to be. */
static void
schedule_timeout(void)
{
  uint64_t due = ff_target_poll_timeout(flashflow_target);
  if (due == scheduled_micros)
    return;
  scheduled_micros = due;
  if (due == FF_NO_TIMEOUT) {
    mainloop_event_cancel(timeout_event);
    return;
  }
  uint64_t now = flashflow_now_micros();
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
  (void) ff_target_handle_timeout(flashflow_target, flashflow_now_micros());
  flashflow_drain_outputs();
}

/* ---- Start and end -------------------------------------------------------------------------- */

/** Gives the library the options in force. */
static void
apply_options(void)
{
  flashflow_option_list_t list;
  char error[256] = "";
  flashflow_get_options(&list);
  if (ff_target_set_options(flashflow_target, list.option, list.count,
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
  if (ff_target_new(NULL, granted, error, sizeof(error), &flashflow_target)
        != FF_STATUS_OK) {
    log_warn(LD_GENERAL, "FlashFlow: this relay cannot be measured: the FFGranted lines of "
             "the state file: %s", error);
    flashflow_target = NULL;
    return -1;
  }
  links = smartlist_new();
  timeout_event = mainloop_event_new(timeout_cb, NULL);
  flashflow_echo_start();
  apply_options();
  return 0;
}

/** Frees a link. */
static void
link_free(flashflow_link_t *link)
{
  if (link->circuit)
    flashflow_echo_closed();
  ff_circuit_free(link->circuit);
  tor_free(link);
}

/** Frees all that flashflow_start() has made. */
void
flashflow_stop(void)
{
  if (!flashflow_target)
    return;
  ff_target_free(flashflow_target);
  flashflow_target = NULL;
  flashflow_is_measuring = false;
  flashflow_exact_buckets = 0;
  scheduled_micros = FF_NO_TIMEOUT;
  SMARTLIST_FOREACH(links, flashflow_link_t *, link, link_free(link));
  smartlist_free(links);
  mainloop_event_free(timeout_event);
  flashflow_echo_stop();
  flashflow_free_metrics();
}

/** Takes the options that have just come into force. */
void
flashflow_options_changed(void)
{
  if (flashflow_target)
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
  (void) ff_target_set_params(flashflow_target, params, count);
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
  flashflow_echo_opened();
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
        (void) ff_target_abort(flashflow_target, flashflow_now_micros());
      }
      break;
    case FF_OUTPUT_KIND_NONE:
    default:
      break;
  }
}

/** Does all that the library asks for. */
void
flashflow_drain_outputs(void)
{
  ff_output output;
  while (ff_target_poll_output(flashflow_target, &output) == FF_STATUS_OK &&
         output.kind != FF_OUTPUT_KIND_NONE)
    perform(&output);
  memwipe(&output, 0, sizeof(output));
  flashflow_is_measuring = !ff_target_is_idle(flashflow_target);
  if (!flashflow_is_measuring) {
    SMARTLIST_FOREACH(links, flashflow_link_t *, link, link->is_coordinator = false);
    flashflow_echo_over();
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
    .now_micros = flashflow_now_micros(),
    .unix_secs = (uint64_t) time(NULL),
  };
  flashflow_echo_report();
  apply_params();
  memset(&before, 0, sizeof(before));
  memset(&after, 0, sizeof(after));
  (void) ff_target_totals(flashflow_target, &before);
  (void) ff_target_handle_control(flashflow_target, &arrival);
  (void) ff_target_totals(flashflow_target, &after);
  if (after.granted > before.granted)
    link->is_coordinator = true;
  memwipe(exporter, 0, sizeof(exporter));
  memwipe(entropy, 0, sizeof(entropy));
  flashflow_drain_outputs();
}

/** Handles <b>cell</b>, if it is one of ours and this relay takes part in measurements. Returns
 * whether it was. */
bool
flashflow_handle_cell(cell_t *cell, or_connection_t *conn)
{
  if (!flashflow_target || TO_CONN(conn)->state != OR_CONN_STATE_OPEN ||
      !(flashflow_is_measuring || flashflow_is_allowed()))
    return false;
  switch (cell->command) {
    case FF_CMD_MEAS_ECHO:
      flashflow_echo_handle(cell, conn);
      return true;
    case FF_CMD_MEASUREMENT:
      handle_control(cell, conn);
      return true;
    default:
      return false;
  }
}

/** Notes that <b>conn</b> is about to be freed. */
void
flashflow_about_to_close(or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  if (!link || !flashflow_target)
    return;
  conn->flashflow_link = NULL;
  smartlist_remove(links, link);
  flashflow_echo_report();
  (void) ff_target_handle_link_closed(flashflow_target, link->id, flashflow_now_micros());
  link_free(link);
  flashflow_drain_outputs();
}

