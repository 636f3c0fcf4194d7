/**
 * @file flashflow.c
 * @brief Lets a relay be measured by FlashFlow: drives the library's state machine.
 *
 * The library (ff_relay_ext.h) decides everything that the protocol is about. Here is what only
 * tor can do: give it the cells of a link, and do what it asks for.
 **/

#include "core/or/or.h"

#include "app/config/config.h"
#include "core/mainloop/connection.h"
#include "core/mainloop/mainloop.h"
#include "core/or/connection_or.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/flashflow/flashflow_private.h"
#include "feature/nodelist/networkstatus.h"
#include "feature/relay/routermode.h"
#include "lib/crypt_ops/crypto_rand.h"
#include "lib/crypt_ops/crypto_util.h"
#include "lib/evloop/compat_libevent.h"
#include "lib/time/compat_time.h"
#include "lib/tls/tortls.h"

#include "core/or/cell_st.h"
#include "core/or/or_connection_st.h"
#include "feature/nodelist/networkstatus_st.h"

/** What the library sends on a link that does not echo may wait there to be sent, in bytes. */
#define UNSENT_BYTES_MAX (64 << 10)
/** How often we look whether the consensus has other parameters, in seconds. */
#define PARAMS_SECONDS 10

ff_target *flashflow_target;
bool flashflow_is_measuring;
bool flashflow_is_allowed;
/** Runs when the library wants to be called. */
static mainloop_event_t *timeout_event;
/** Runs when it is time to look at the consensus. */
static mainloop_event_t *params_event;
/** For when that is scheduled, in microseconds; FF_NO_TIMEOUT when it is not. */
static uint64_t scheduled_micros = FF_NO_TIMEOUT;
/** From when the consensus is that the library has the parameters of; 0 for none. */
static time_t params_valid_after;

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
  /* What has been echoed belongs to the second that may be over, and to the measurement. */
  flashflow_echo_report();
  (void) ff_target_handle_timeout(flashflow_target, flashflow_now_micros());
  flashflow_drain_outputs();
}

/* ---- Start and end -------------------------------------------------------------------------- */

/** Has token buckets keep what tor drops, if that is wanted now. */
void
flashflow_update_exact_buckets(void)
{
  flashflow_is_allowed = ff_target_is_allowed(flashflow_target);
  flashflow_exact_buckets = flashflow_is_allowed || flashflow_ingress_is_on();
}

/** Gives the library the options in force. */
static void
apply_options(void)
{
  flashflow_option_list_t list;
  char error[256] = "";
  flashflow_get_options(&list);
  if (ff_target_set_options(flashflow_target, list.option, list.count, flashflow_now_micros(),
                            error, sizeof(error)) != FF_STATUS_OK)
    log_warn(LD_CONFIG, "FlashFlow: %s", error);
  flashflow_option_list_clear(&list);
  flashflow_update_exact_buckets();
  flashflow_drain_outputs();
  if (server_mode(get_options()))
    mainloop_event_activate(params_event);
}

/** Gives the library the parameters of the consensus. */
static void
apply_params(void)
{
  const networkstatus_t *ns = networkstatus_get_latest_consensus();
  flashflow_param_list_t list;
  flashflow_get_params(ns, false, &list);
  params_valid_after = ns ? ns->valid_after : 0;
  (void) ff_target_set_params(flashflow_target, list.param, list.count, flashflow_now_micros());
  flashflow_update_exact_buckets();
  flashflow_drain_outputs();
}

/** Gives the library the parameters of a consensus that is newer than those it has. */
static void
follow_consensus(void)
{
  const networkstatus_t *ns = networkstatus_get_latest_consensus();
  if (ns && ns->valid_after != params_valid_after)
    apply_params();
}

/** Callback of <b>params_event</b>. */
static void
params_cb(mainloop_event_t *event, void *arg)
{
  const struct timeval delay = { .tv_sec = PARAMS_SECONDS };
  (void) arg;
  apply_params();
  mainloop_event_schedule(event, &delay);
}

/** Makes the target, which remembers the measurements <b>granted</b>.
 * Returns -1, having said so in the log, when it cannot. */
int
flashflow_start(const char *granted)
{
  char error[256] = "";
  flashflow_ingress_start();
  if (ff_target_new(NULL, granted, error, sizeof(error), &flashflow_target)
        != FF_STATUS_OK) {
    log_warn(LD_GENERAL, "FlashFlow: this relay cannot be measured: the FFGranted lines of "
             "the state file: %s", error);
    flashflow_target = NULL;
    return -1;
  }
  timeout_event = mainloop_event_new(timeout_cb, NULL);
  params_event = mainloop_event_new(params_cb, NULL);
  flashflow_echo_start();
  apply_options();
  return 0;
}

/** Frees all that flashflow_start() has made. */
void
flashflow_stop(void)
{
  flashflow_ingress_stop();
  flashflow_kist_stop();
  ff_target_free(flashflow_target);
  flashflow_target = NULL;
  flashflow_is_measuring = false;
  params_valid_after = 0;
  flashflow_update_exact_buckets();
  if (!timeout_event)
    return;
  scheduled_micros = FF_NO_TIMEOUT;
  flashflow_link_free_all();
  mainloop_event_free(timeout_event);
  mainloop_event_free(params_event);
  flashflow_echo_stop();
  flashflow_free_metrics();
}

/** Takes the options that have just come into force. */
void
flashflow_options_changed(void)
{
  flashflow_ingress_options_changed();
  if (flashflow_target)
    apply_options();
}

/* ---- What the library asks for --------------------------------------------------------------- */

/** Writes a cell to the link, past the circuits' queues: what the relay answers must not be
 * overtaken by its answer to a later cell. Who reads no answers gets no more of them. */
static void
send_cell(flashflow_link_t *link, const uint8_t *bytes)
{
  cell_t cell;
  if (!link->circuit &&
      connection_get_outbuf_len(TO_CONN(link->conn)) > UNSENT_BYTES_MAX) {
    log_info(LD_PROTOCOL, "FlashFlow: a peer does not read what it is answered. Closing the "
             "link.");
    connection_or_close_for_error(link->conn, 0);
    return;
  }
  memset(&cell, 0, sizeof(cell));
  cell.circ_id = ntohl(get_uint32(bytes));
  cell.command = bytes[4];
  memcpy(cell.payload, bytes + 5, sizeof(cell.payload));
  connection_or_write_cell_to_buf(&cell, link->conn);
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
  flashflow_link_t *link = output->link ? flashflow_link_by_id(output->link) : NULL;
  switch (output->kind) {
    case FF_OUTPUT_KIND_SEND:
      if (link)
        send_cell(link, output->cell);
      break;
    case FF_OUTPUT_KIND_OPEN:
      flashflow_link_open(link, output->circuit);
      break;
    case FF_OUTPUT_KIND_OVER:
      if (link)
        flashflow_link_over(link);
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
  const bool is_measuring = !ff_target_is_idle(flashflow_target);
  if (is_measuring && !flashflow_is_measuring)
    flashflow_bucket_start();
  else if (!is_measuring && flashflow_is_measuring)
    flashflow_echo_over();
  flashflow_is_measuring = is_measuring;
  schedule_timeout();
}

/* ---- Cells ---------------------------------------------------------------------------------- */

/** Handles a MEASUREMENT cell. */
static void
handle_control(const cell_t *cell, or_connection_t *conn)
{
  flashflow_link_t *link = flashflow_link_of(conn);
  uint8_t exporter[DIGEST256_LEN];
  uint8_t entropy[FF_SECRET_LEN];
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
    .has_circuits = flashflow_link_has_circuits(link),
  };
  flashflow_echo_report();
  apply_params();
  (void) ff_target_handle_control(flashflow_target, &arrival);
  memwipe(exporter, 0, sizeof(exporter));
  memwipe(entropy, 0, sizeof(entropy));
  flashflow_drain_outputs();
}

/** Whether this tor is a relay for the peer of <b>conn</b>: on the same links tor answers requests
 * for circuits. A client, or a bridge on a link that it has opened itself, must answer as a tor
 * without the target: its guard could tell it from others, and a bridge from clients. */
static bool
is_relay_for(const or_connection_t *conn)
{
  const or_options_t *options = get_options();
  return server_mode(options) && (public_server_mode(options) || !conn->is_outgoing);
}

/** Handles <b>cell</b>, if it is one of ours and this relay takes part in measurements. Returns
 * whether it was. */
bool
flashflow_handle_cell(cell_t *cell, or_connection_t *conn)
{
  if (!flashflow_target || TO_CONN(conn)->state != OR_CONN_STATE_OPEN)
    return false;
  /* A link that has brought a MEASUREMENT cell was checked then. */
  if (!conn->flashflow_link && !is_relay_for(conn))
    return false;
  if (!flashflow_is_measuring) {
    follow_consensus();
    if (!flashflow_is_allowed)
      return false;
  }
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
  flashflow_kist_about_to_close(conn);
  flashflow_link_t *link = conn->flashflow_link;
  if (!link || !flashflow_target)
    return;
  flashflow_echo_report();
  const uint64_t id = link->id;
  flashflow_link_free(link);
  (void) ff_target_handle_link_closed(flashflow_target, id, flashflow_now_micros());
  flashflow_drain_outputs();
}

