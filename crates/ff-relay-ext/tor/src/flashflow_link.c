/**
 * @file flashflow_link.c
 * @brief The links of measurements: their circuits, and which cells they may bring.
 *
 * A link that measures has one circuit, which tor has not made, and no other: what else it carried
 * would be neither measurement nor background. The circuit bears the link's number, and a cell on
 * its id is an echo cell only as long as the circuit with this id is that one.
 **/

#define CHANNEL_OBJECT_PRIVATE
#include "core/or/or.h"

#include "app/config/config.h"
#include "core/crypto/relay_crypto.h"
#include "core/mainloop/connection.h"
#include "core/or/channel.h"
#include "core/or/channeltls.h"
#include "core/or/circuitlist.h"
#include "core/or/connection_or.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_private.h"
#include "lib/crypt_ops/crypto_rand.h"
#include "lib/crypt_ops/crypto_util.h"
#include "lib/evloop/token_bucket.h"
#include "lib/time/compat_time.h"

#include "core/or/cell_st.h"
#include "core/or/or_circuit_st.h"
#include "core/or/or_connection_st.h"

/** The hash of a link: its number, of which tor gives out one after the other. */
static unsigned
link_hash(const flashflow_link_t *link)
{
  return (unsigned) link->id;
}

/** Whether two links are the same. */
static int
link_eq(const flashflow_link_t *a, const flashflow_link_t *b)
{
  return a->id == b->id;
}

/** All links that have brought a MEASUREMENT cell. */
static HT_HEAD(flashflow_links, flashflow_link_t) links = HT_INITIALIZER();
HT_PROTOTYPE(flashflow_links, flashflow_link_t, node, link_hash, link_eq);
HT_GENERATE2(flashflow_links, flashflow_link_t, node, link_hash, link_eq, 0.6,
             tor_reallocarray, tor_free_);

/* ---- The links ------------------------------------------------------------------------------ */

/** The link with this number, or NULL if it is gone or about to be. */
flashflow_link_t *
flashflow_link_by_id(uint64_t id)
{
  flashflow_link_t key = { .id = id };
  flashflow_link_t *link = HT_FIND(flashflow_links, &links, &key);
  return link && !TO_CONN(link->conn)->marked_for_close ? link : NULL;
}

/** The link's record, made if it is not there yet. */
flashflow_link_t *
flashflow_link_of(or_connection_t *conn)
{
  if (!conn->flashflow_link) {
    flashflow_link_t *link = tor_malloc_zero(sizeof(*link));
    link->id = TO_CONN(conn)->global_identifier;
    link->conn = conn;
    HT_INSERT(flashflow_links, &links, link);
    conn->flashflow_link = link;
  }
  return conn->flashflow_link;
}

/** Frees a link, which is in the table no more. */
static void
free_link(flashflow_link_t *link)
{
  if (link->circuit)
    flashflow_echo_closed();
  ff_circuit_free(link->circuit);
  tor_free(link);
}

/** Forgets a link. */
void
flashflow_link_free(flashflow_link_t *link)
{
  link->conn->flashflow_link = NULL;
  HT_REMOVE(flashflow_links, &links, link);
  free_link(link);
}

/** Frees all links, when their connections are gone already. */
void
flashflow_link_free_all(void)
{
  flashflow_link_t **next = HT_START(flashflow_links, &links);
  while (next) {
    flashflow_link_t *link = *next;
    next = HT_NEXT_RMV(flashflow_links, &links, next);
    free_link(link);
  }
  HT_CLEAR(flashflow_links, &links);
}

/** The link's part in a measurement. */
ff_part
flashflow_link_part(const flashflow_link_t *link)
{
  if (!link)
    return FF_PART_NONE;
  return link->circuit ? FF_PART_MEASUREMENT : ff_target_part_of(flashflow_target, link->id);
}

/** Whether a link has, or has had, circuits that are not ours. */
bool
flashflow_link_has_circuits(const flashflow_link_t *link)
{
  const or_connection_t *conn = link->conn;
  if (link->circuit)
    return false;
  return conn->flashflow_had_circuits ||
    channel_num_circuits(TLS_CHAN_TO_BASE(conn->chan)) > 0;
}

/* ---- Its circuit ---------------------------------------------------------------------------- */

/** Gives <b>circ</b> the keys of <b>circuit</b>, as if the measurer were a client that had built a
 * circuit. Nobody knows the keys for the other direction. */
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
  circ->flashflow_link_id = link->id;
  link->circ_id = circ_id;
  return 0;
}

/** Makes the link a measurement link. Takes <b>circuit</b>. */
void
flashflow_link_open(flashflow_link_t *link, ff_circuit *circuit)
{
  if (!link || link->circuit || !link->conn->chan ||
      open_circuit(link, circuit) < 0) {
    ff_circuit_free(circuit);
    if (link)
      connection_or_close_for_error(link->conn, 0);
    return;
  }
  link->circuit = circuit;
  link->measurer = ff_circuit_measurer(circuit);
  flashflow_ingress_forget(link->conn);
  flashflow_echo_opened();
  /* Measured traffic is bound by the relay's limits wherever it comes from, but not by those for
   * single clients. */
  TO_CONN(link->conn)->always_rate_limit_as_remote = 1;
  token_bucket_rw_adjust(&link->conn->bucket,
                         (int) get_options()->BandwidthRate,
                         (int) get_options()->BandwidthBurst);
  token_bucket_rw_reset(&link->conn->bucket, monotime_coarse_get_stamp());
}

/** The link's circuit for echoed cells; NULL if it has none that tor has not closed. */
circuit_t *
flashflow_link_circuit(const flashflow_link_t *link)
{
  if (!link->circuit || !link->conn->chan)
    return NULL;
  channel_t *chan = TLS_CHAN_TO_BASE(link->conn->chan);
  circuit_t *circ = circuit_get_by_circid_channel(link->circ_id, chan);
  if (!circ || CIRCUIT_IS_ORIGIN(circ) || circ->marked_for_close ||
      circ->state != CIRCUIT_STATE_OPEN)
    return NULL;
  const or_circuit_t *or_circ = CONST_TO_OR_CIRCUIT(circ);
  return or_circ->flashflow_link_id == link->id && or_circ->p_chan == chan &&
    or_circ->p_circ_id == link->circ_id ? circ : NULL;
}

/** Ends the link's circuit, because the measurement is over. What the link still brings is read and
 * dropped, so that the end of the link does not overtake what has been sent on it. */
void
flashflow_link_over(flashflow_link_t *link)
{
  circuit_t *circ = flashflow_link_circuit(link);
  if (circ) {
    /* Without DESTROY: the measurer has been told by a message. */
    circuit_set_p_circid_chan(TO_OR_CIRCUIT(circ), 0, NULL);
    circuit_mark_for_close(circ, END_CIRC_REASON_FINISHED);
  }
  if (!link->circuit)
    return;
  flashflow_echo_closed();
  ff_circuit_free(link->circuit);
  link->circuit = NULL;
  flashflow_echo_resume(link);
}

/* ---- Other cells ---------------------------------------------------------------------------- */

/** Whether a cell asks for a circuit. */
static bool
is_create(uint8_t command)
{
  return command == CELL_CREATE || command == CELL_CREATE_FAST || command == CELL_CREATE2;
}

/** Whether a cell uses a circuit. */
static bool
is_relay(uint8_t command)
{
  return command == CELL_RELAY || command == CELL_RELAY_EARLY;
}

/** Whether a cell makes, uses or ends a circuit of tor's. */
static bool
is_of_circuit(uint8_t command)
{
  return is_create(command) || is_relay(command) || command == CELL_DESTROY ||
    command == CELL_CREATED || command == CELL_CREATED_FAST || command == CELL_CREATED2;
}

/** Whether a measurement link may bring the cell, now or when it is about to end. */
static bool
is_for_measurement(uint8_t command)
{
  return command == FF_CMD_MEAS_ECHO || command == FF_CMD_MEASUREMENT ||
    command == CELL_PADDING || command == CELL_VPADDING || command == CELL_PADDING_NEGOTIATE;
}

/** Whether a coordinator may send the cell: a CREATE_FAST cell, by which it finds out whether the
 * relay knows of measurements, or what belongs to the circuit that this makes, or to none. */
static bool
is_for_coordinator(flashflow_link_t *link, uint8_t command, circid_t circ_id)
{
  if (!is_of_circuit(command))
    return true;
  if (circ_id != 0 && !link->probe_id && command == CELL_CREATE_FAST) {
    link->probe_id = circ_id;
    return true;
  }
  return circ_id != 0 && circ_id == link->probe_id &&
    (command == CELL_DESTROY || is_relay(command));
}

/** Looks at a cell before tor does. Returns whether that is all: on links of measurements there are
 * no other circuits, and they are closed when they bring a cell of one. */
bool
flashflow_refuses_cell(or_connection_t *conn, uint8_t command, uint32_t circ_id)
{
  flashflow_link_t *link = conn->flashflow_link;
  bool is_allowed = true;
  switch (flashflow_link_part(link)) {
    case FF_PART_COORDINATOR:
      is_allowed = is_for_coordinator(link, command, circ_id);
      /* The probe's circuit carries nothing. */
      if (is_allowed && is_relay(command))
        return true;
      break;
    case FF_PART_MEASUREMENT:
    case FF_PART_ENDING:
      is_allowed = is_for_measurement(command);
      break;
    case FF_PART_NONE:
    default:
      break;
  }
  if (!is_allowed) {
    log_info(LD_PROTOCOL, "FlashFlow: a cell with command %d on a link of a measurement. Closing "
             "the link.", (int) command);
    connection_or_close_for_error(conn, 0);
    return true;
  }
  if (is_create(command))
    conn->flashflow_had_circuits = 1;
  return false;
}
