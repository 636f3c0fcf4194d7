/**
 * @file flashflow_echo.c
 * @brief Echoed cells: their way, how many may be queued, and in which order links are read from.
 *
 * They go the way of forwarded ones, through a circuit's queue and the scheduler, so that they
 * cost as much. The library hears of them in batches.
 **/

#define CHANNEL_OBJECT_PRIVATE
#include "core/or/or.h"

#include "core/crypto/relay_crypto.h"
#include "core/mainloop/connection.h"
#include "core/mainloop/mainloop.h"
#include "core/or/channel.h"
#include "core/or/channeltls.h"
#include "core/or/circuitlist.h"
#include "core/or/connection_or.h"
#include "core/or/relay.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_private.h"
#include "feature/nodelist/networkstatus.h"
#include "lib/evloop/compat_libevent.h"

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
/** What each of them may have queued at least: 8 cells. */
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

/** How many links have a measurement circuit. */
static int n_circuits;
/** How many bytes each of these may have queued now. */
static size_t queue_limit;
/** The most that may ever be: tor closes circuits whose queues are longer still. */
static size_t queue_limit_max;
/** When the second began that is being counted, in microseconds. */
static uint64_t second_micros;
/** Bytes echoed in it, and in the second before. */
static uint64_t bytes_this_second, bytes_last_second;
/** Cells echoed that the library has not heard of: all, and of each measurer. */
static uint64_t n_echoed, n_echoed_of[FF_MEASURERS_MAX];
/** Whether others are read from before measurement links. */
static bool clients_first;
/** Since when the two below are counted, in microseconds. */
static uint64_t order_micros;
/** Bytes echoed, and bytes read from others. */
static uint64_t order_echoed, order_background;
/** Runs once for all cells that one round of the main loop has echoed: it has the priority of the
 * reading from measurement links, and comes behind what is to be read already. */
static struct event *echoed_event;

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

/** Tells the library of the cells echoed since it heard last. */
void
flashflow_echo_report(void)
{
  uint64_t cells = n_echoed;
  n_echoed = 0;
  if (!cells || !flashflow_target)
    return;
  uint64_t now = flashflow_now_micros();
  note_rate(cells * FF_CELL_LEN, now);
  decide_order(cells * FF_CELL_LEN, now);
  for (uint8_t measurer = 0; measurer < FF_MEASURERS_MAX; ++measurer) {
    if (n_echoed_of[measurer])
      (void) ff_target_on_echoed(flashflow_target, measurer, n_echoed_of[measurer], now);
    n_echoed_of[measurer] = 0;
  }
  flashflow_drain_outputs();
}

/** Callback of <b>echoed_event</b>. */
static void
echoed_cb(evutil_socket_t fd, short what, void *arg)
{
  (void) fd;
  (void) what;
  (void) arg;
  flashflow_echo_report();
}

/** Gets ready for measurements. */
void
flashflow_echo_start(void)
{
  echoed_event = tor_event_new(tor_libevent_get_base(), -1, 0, echoed_cb, NULL);
}

/** Forgets all. */
void
flashflow_echo_stop(void)
{
  tor_event_free(echoed_event);
  bytes_this_second = bytes_last_second = second_micros = n_echoed = 0;
  memset(n_echoed_of, 0, sizeof(n_echoed_of));
  order_micros = order_echoed = order_background = 0;
  clients_first = false;
}

/** Notes that a link has got a measurement circuit. */
void
flashflow_echo_opened(void)
{
  ++n_circuits;
  update_queue_limit_max();
}

/** Notes that a measurement circuit is gone. */
void
flashflow_echo_closed(void)
{
  --n_circuits;
  update_queue_limit();
}

/** Notes that no measurement is granted or running. */
void
flashflow_echo_over(void)
{
  clients_first = false;
}

/** Notes bytes that have been read from others. */
void
flashflow_echo_note_background(size_t read)
{
  order_background += read;
}

/** How many bytes are queued for the link. */
static size_t
queued_bytes(const flashflow_link_t *link, const circuit_t *circ)
{
  size_t cells = 0;
  if (circ)
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
echo_cell(cell_t *cell, const flashflow_link_t *link)
{
  circuit_t *circ = flashflow_link_circuit(link);
  crypt_path_t *layer_hint = NULL;
  char recognized = 0;
  /* A measurer knows the keys, and so can make a cell that the relay would take as its own. */
  if (!circ ||
      relay_decrypt_cell(circ, cell, CELL_DIRECTION_OUT, &layer_hint, &recognized) < 0 ||
      recognized)
    return NULL;
  channel_t *chan = TLS_CHAN_TO_BASE(link->conn->chan);
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
void
flashflow_echo_handle(cell_t *cell, or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  const circuit_t *circ = NULL;
  if (link && link->circuit && cell->circ_id == link->circ_id)
    circ = echo_cell(cell, link);
  if (!circ) {
    if (flashflow_link_part(link) == FF_PART_ENDING)
      return;
    log_info(LD_PROTOCOL, "FlashFlow: a MEAS_ECHO cell on a link or circuit without a "
             "measurement. Closing the link.");
    connection_or_close_for_error(conn, 0);
    return;
  }
  if (link->is_last != clients_first)
    set_order(link);
  ++n_echoed_of[link->measurer];
  if (n_echoed++ == 0)
    report_soon();
  else if (n_echoed >= ECHOED_CELLS_MAX)
    flashflow_echo_report();
  if (!link->is_paused && queued_bytes(link, circ) >= queue_limit)
    pause_link(link);
}

/** Reads on from a link. */
void
flashflow_echo_resume(flashflow_link_t *link)
{
  if (!link->is_paused)
    return;
  link->is_paused = false;
  connection_start_reading(TO_CONN(link->conn));
}

/** Notes that some bytes have gone out to <b>conn</b>. */
void
flashflow_flushed_some(or_connection_t *conn)
{
  flashflow_link_t *link = conn->flashflow_link;
  if (!link || !link->is_paused || TO_CONN(conn)->marked_for_close)
    return;
  if (queued_bytes(link, flashflow_link_circuit(link)) <= queue_limit / 2)
    flashflow_echo_resume(link);
}

/** How many bytes a measurement link may read before too much is queued for it: a cell at least. */
size_t
flashflow_echo_room(const flashflow_link_t *link)
{
  size_t queued = queued_bytes(link, flashflow_link_circuit(link));
  return queued + FF_CELL_LEN < queue_limit ? queue_limit - queued : FF_CELL_LEN;
}
