/*
 * A relay in C, as far as the library can tell: it knows links, and does what the header says.
 *
 *   measure file PATH | measure text [GRANTS]
 *
 * tests/c_interface.rs plays coordinator and measurers. It writes one command a line, and this
 * program answers with any number of lines and then "ok":
 *
 *   option NAME VALUE        for the next "options"
 *   options                  -> error TEXT
 *   param NAME VALUE         takes this one parameter
 *   open LINK EXPORTER       a peer has connected
 *   cell LINK CELL           -> cell LINK CELL, over LINK, close LINK, tell LEVEL TEXT, store TEXT
 *   gone LINK                the peer has closed
 *   time MICROS UNIX         the timer is looked at
 *   background SENT RECEIVED
 *   allowance                -> allowance unlimited, or allowance RECEIVE SEND
 *   exempt ADDRESS           -> exempt 0 or 1
 *   arrive ADDRESS           -> arrive 0 or 1: a link was let past the defences
 *   totals                   -> totals and the numbers in the order of the struct
 *   abort, idle, quit
 *
 * Bytes are in hexadecimal. Whatever a relay could not go on with ends the program.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ff_relay_ext.h"

#define MUST(condition)                                                   \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
      exit(1);                                                            \
    }                                                                     \
  } while (0)

#define MAX_LINKS 64
#define MAX_OPTIONS 8

/* A connection. */
struct link {
  int is_open;
  uint64_t id;
  uint8_t exporter[FF_SECRET_LEN];
  ff_circuit *circuit;
};

static struct link links[MAX_LINKS];
static ff_target *target;
static uint64_t now_micros = 1, unix_secs = 1000000000;

static struct link *
find_link(uint64_t id)
{
  for (int i = 0; i < MAX_LINKS; i++) {
    if (links[i].is_open && links[i].id == id)
      return &links[i];
  }
  return NULL;
}

static void
close_link(struct link *link)
{
  ff_circuit_free(link->circuit);
  memset(link, 0, sizeof(*link));
}

static void
read_hex(const char *text, uint8_t *out, size_t len)
{
  MUST(strlen(text) == 2 * len);
  for (size_t i = 0; i < len; i++) {
    unsigned byte;
    MUST(sscanf(text + 2 * i, "%2x", &byte) == 1);
    out[i] = (uint8_t)byte;
  }
}

static void
print_hex(const uint8_t *bytes, size_t len)
{
  for (size_t i = 0; i < len; i++)
    printf("%02x", bytes[i]);
}

static void
send_cell(const struct link *link, const uint8_t *cell)
{
  printf("cell %" PRIu64 " ", link->id);
  print_hex(cell, FF_CELL_LEN);
  printf("\n");
}

/* A relay could decrypt by itself with this key. */
static void
check_key(const ff_circuit *circuit)
{
  ff_crypto_kind kind = ff_circuit_crypto(circuit);
  uint8_t key[FF_KEY_LEN_CGO_AES128 + 1] = { 0 }, zeros[sizeof(key)] = { 0 };
  size_t len = kind == FF_CRYPTO_KIND_CGO_AES128 ? FF_KEY_LEN_CGO_AES128 : FF_KEY_LEN_AES128_CTR;

  MUST(kind == FF_CRYPTO_KIND_CGO_AES128 || kind == FF_CRYPTO_KIND_AES128_CTR);
  MUST(ff_circuit_forward_key(circuit, key, len - 1) == FF_STATUS_BAD_LENGTH);
  MUST(ff_circuit_forward_key(circuit, key, len + 1) == FF_STATUS_BAD_LENGTH);
  MUST(ff_circuit_forward_key(circuit, NULL, len) == FF_STATUS_NULL_POINTER);
  MUST(memcmp(key, zeros, sizeof(key)) == 0);
  MUST(ff_circuit_forward_key(circuit, key, len) == FF_STATUS_OK);
  /* That its last four bytes are zeros is less likely than a broken test. */
  MUST(memcmp(key + len - 4, zeros, 4) != 0 && key[len] == 0);
}

/* Does what the library wants. */
static void
do_outputs(void)
{
  for (;;) {
    ff_output output;
    MUST(ff_target_poll_output(target, &output) == FF_STATUS_OK);
    struct link *link = find_link(output.link);
    switch (output.kind) {
      case FF_OUTPUT_KIND_NONE:
        return;
      case FF_OUTPUT_KIND_SEND:
        if (link)
          send_cell(link, output.cell);
        break;
      case FF_OUTPUT_KIND_OPEN:
        MUST(output.circuit != NULL);
        check_key(output.circuit);
        if (link)
          link->circuit = output.circuit;
        else
          ff_circuit_free(output.circuit);
        break;
      case FF_OUTPUT_KIND_OVER:
        if (link) {
          printf("over %" PRIu64 "\n", link->id);
          MUST(ff_target_part_of(target, link->id) == FF_PART_ENDING);
          ff_circuit_free(link->circuit);
          link->circuit = NULL;
        }
        break;
      case FF_OUTPUT_KIND_CLOSE:
        if (link) {
          printf("close %" PRIu64 "\n", link->id);
          close_link(link);
          MUST(ff_target_handle_link_closed(target, output.link, now_micros) == FF_STATUS_OK);
        }
        break;
      case FF_OUTPUT_KIND_TELL:
        printf("tell %d %s\n", (int)output.level, output.text);
        break;
      case FF_OUTPUT_KIND_STORE:
        printf("store ");
        print_hex((const uint8_t *)output.text, strlen(output.text));
        printf("\n");
        break;
    }
  }
}

static void
on_cell(struct link *link, uint8_t *cell)
{
  uint32_t circ_id = (uint32_t)cell[0] << 24 | (uint32_t)cell[1] << 16 |
                     (uint32_t)cell[2] << 8 | (uint32_t)cell[3];
  uint8_t *body = cell + 5;
  if (cell[4] == FF_CMD_MEAS_ECHO && ff_target_part_of(target, link->id) == FF_PART_ENDING) {
    /* The link's measurement is over. */
  } else if (cell[4] == FF_CMD_MEAS_ECHO) {
    if (link->circuit == NULL || ff_circuit_id(link->circuit) != circ_id) {
      uint64_t id = link->id;
      printf("close %" PRIu64 "\n", id);
      close_link(link);
      MUST(ff_target_handle_link_closed(target, id, now_micros) == FF_STATUS_OK);
    } else {
      MUST(ff_circuit_echo(link->circuit, body) == FF_STATUS_OK);
      send_cell(link, cell);
      uint8_t measurer = ff_circuit_measurer(link->circuit);
      MUST(ff_target_on_echoed(target, measurer, 1, now_micros) == FF_STATUS_OK);
    }
  } else if (cell[4] == FF_CMD_MEASUREMENT) {
    /* A real relay takes fresh random bytes; here a run must be like the other. */
    static uint8_t entropy[FF_SECRET_LEN] = { 1 };
    entropy[1]++;
    ff_arrival arrival = { link->id, circ_id, false, body, link->exporter, entropy,
                           now_micros, unix_secs };
    MUST(ff_target_handle_control(target, &arrival) == FF_STATUS_OK);
  }
  do_outputs();
}

/* What no relay should do must come to nothing. */
static void
check_misuse(void)
{
  char error[64] = "unchanged";
  ff_target *other = NULL, *mine = NULL;
  ff_output output;
  ff_allowance allowance;
  ff_totals totals;
  uint8_t bytes[FF_BODY_LEN] = { 0 };
  ff_option good = { "FFMeasurementsAllowed", "1" };
  ff_option bad = { "FFMaxMeasurementDuration", "1" };
  ff_option no_text = { "FFMaxMeasurementDuration", NULL };
  ff_option not_utf8 = { "FFMaxMeasurementDuration", "\xff" };
  ff_param no_name = { NULL, 1 };
  ff_arrival arrival = { 1, 0, false, NULL, bytes, bytes, 1, 1 };
  ff_arrival zeros = { 1, 0, false, bytes, bytes, bytes, 1, 1 };

  memset(&output, 0x55, sizeof(output));
  memset(&allowance, 0x55, sizeof(allowance));
  memset(&totals, 0x55, sizeof(totals));

  /* NULL in place of a target, or of anything else. */
  MUST(ff_target_new(NULL, NULL, NULL, 0, NULL) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_set_options(NULL, &good, 1, 1, error, sizeof(error)) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_set_params(NULL, NULL, 0, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_handle_control(NULL, &zeros) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_handle_link_closed(NULL, 1, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_handle_timeout(NULL, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_abort(NULL, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_on_echoed(NULL, 0, 1, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_on_background(NULL, 1, 1, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_on_background_wait(NULL) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_background_allowance(NULL, &allowance) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_poll_output(NULL, &output) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_totals(NULL, &totals) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_poll_timeout(NULL) == FF_NO_TIMEOUT);
  MUST(ff_target_part_of(NULL, 1) == FF_PART_NONE);
  MUST(ff_target_is_idle(NULL) && !ff_target_has_failed(NULL) && !ff_target_is_allowed(NULL));
  MUST(!ff_target_is_exempt(NULL, bytes, 4) && !ff_target_use_exemption(NULL, bytes, 4));
  MUST(ff_circuit_echo(NULL, bytes) == FF_STATUS_NULL_POINTER);
  MUST(ff_circuit_id(NULL) == 0 && ff_circuit_measurer(NULL) == 0);
  MUST(ff_circuit_crypto(NULL) == FF_CRYPTO_KIND_NONE);
  MUST(ff_circuit_forward_key(NULL, bytes, FF_KEY_LEN_AES128_CTR) == FF_STATUS_NULL_POINTER);
  ff_target_free(NULL);
  ff_circuit_free(NULL);
  for (size_t i = 0; i < sizeof(output); i++)
    MUST(((uint8_t *)&output)[i] == 0x55);
  MUST(totals.granted == UINT64_C(0x5555555555555555));
  MUST(allowance.send_bytes == UINT64_C(0x5555555555555555));
  MUST(strcmp(error, "unchanged") == 0);

  /* Options. */
  MUST(ff_options_check(&good, 1, NULL, 0) == FF_STATUS_OK);
  MUST(ff_options_check(NULL, 0, NULL, 0) == FF_STATUS_OK);
  MUST(ff_options_check(NULL, 1, NULL, 0) == FF_STATUS_NULL_POINTER);
  MUST(ff_options_check(&no_text, 1, NULL, 0) == FF_STATUS_NULL_POINTER);
  MUST(ff_options_check(&not_utf8, 1, NULL, 0) == FF_STATUS_BAD_TEXT);
  MUST(ff_options_check(&bad, 1, error, 12) == FF_STATUS_BAD_OPTION);
  MUST(strcmp(error, "FFMaxMeasur") == 0);
  MUST(strcmp(ff_status_text(FF_STATUS_OK), "success") == 0);
  MUST(strcmp(ff_status_text(4711), "unknown status") == 0);
  MUST(strlen(ff_library_version()) >= 5);

  /* Memory that is damaged: the operator is told once, and the rest is to be stored. */
  MUST(ff_target_new(NULL, "nonsense\n\xff\n", error, sizeof(error), &other) == FF_STATUS_OK);
  MUST(ff_target_poll_output(other, &output) == FF_STATUS_OK);
  MUST(output.kind == FF_OUTPUT_KIND_TELL && output.level == FF_LEVEL_WARN);
  MUST(strstr(output.text, "ignored 2") != NULL && strstr(output.text, "line 1") != NULL);
  MUST(ff_target_poll_output(other, &output) == FF_STATUS_OK);
  MUST(output.kind == FF_OUTPUT_KIND_STORE && output.text[0] == '\0');
  MUST(ff_target_abort(other, 1) == FF_STATUS_OK);
  MUST(ff_target_poll_output(other, &output) == FF_STATUS_OK);
  MUST(output.kind == FF_OUTPUT_KIND_NONE);
  ff_target_free(other);
  other = NULL;
  /* Memory that cannot be read. */
  MUST(ff_target_new("/dev", NULL, error, sizeof(error), &other) == FF_STATUS_BAD_MEMORY);
  MUST(other == NULL && strstr(error, "/dev") != NULL);

  /* A good target, and NULL in the second place. */
  MUST(ff_target_new(NULL, NULL, NULL, 0, &mine) == FF_STATUS_OK);
  MUST(ff_target_set_options(mine, &bad, 1, 1, NULL, 0) == FF_STATUS_BAD_OPTION);
  MUST(ff_target_set_params(mine, &no_name, 1, 1) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_handle_control(mine, NULL) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_handle_control(mine, &arrival) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_poll_output(mine, NULL) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_background_allowance(mine, NULL) == FF_STATUS_NULL_POINTER);
  MUST(ff_target_totals(mine, NULL) == FF_STATUS_NULL_POINTER);
  MUST(!ff_target_is_exempt(mine, NULL, 4) && !ff_target_is_exempt(mine, bytes, 5));
  MUST(!ff_target_is_exempt(mine, bytes + FF_BODY_LEN, 0));

  /* Outputs that nobody takes are freed with the target. */
  MUST(ff_target_handle_control(mine, &zeros) == FF_STATUS_OK);
  ff_target_free(mine);
}

/* Does one command; false for "quit". */
static bool
do_command(char *line)
{
  static ff_option options[MAX_OPTIONS];
  static char texts[MAX_OPTIONS][2][256];
  static size_t option_count;
  static char hex[2 * FF_CELL_LEN + 1];
  char name[256], value[256], error[256];
  uint64_t a, b;

  if (sscanf(line, "option %255s %255[^\n]", name, value) == 2) {
    MUST(option_count < MAX_OPTIONS);
    strcpy(texts[option_count][0], name);
    strcpy(texts[option_count][1], value);
    options[option_count].name = texts[option_count][0];
    options[option_count].value = texts[option_count][1];
    option_count++;
  } else if (strcmp(line, "options\n") == 0) {
    if (ff_target_set_options(target, options, option_count, now_micros, error, sizeof(error)))
      printf("error %s\n", error);
    option_count = 0;
  } else if (sscanf(line, "param %255s %" SCNu64, name, &a) == 2) {
    ff_param param = { name, (int64_t)a };
    MUST(ff_target_set_params(target, &param, 1, now_micros) == FF_STATUS_OK);
  } else if (sscanf(line, "open %" SCNu64 " %1028s", &a, hex) == 2) {
    int i = 0;
    while (i < MAX_LINKS && links[i].is_open)
      i++;
    MUST(i < MAX_LINKS);
    links[i].is_open = 1;
    links[i].id = a;
    read_hex(hex, links[i].exporter, FF_SECRET_LEN);
  } else if (sscanf(line, "cell %" SCNu64 " %1028s", &a, hex) == 2) {
    uint8_t cell[FF_CELL_LEN];
    read_hex(hex, cell, FF_CELL_LEN);
    MUST(find_link(a) != NULL);
    on_cell(find_link(a), cell);
  } else if (sscanf(line, "gone %" SCNu64, &a) == 1) {
    MUST(find_link(a) != NULL);
    close_link(find_link(a));
    MUST(ff_target_handle_link_closed(target, a, now_micros) == FF_STATUS_OK);
    do_outputs();
  } else if (sscanf(line, "time %" SCNu64 " %" SCNu64, &a, &b) == 2) {
    now_micros = a;
    unix_secs = b;
    if (ff_target_poll_timeout(target) <= now_micros)
      MUST(ff_target_handle_timeout(target, now_micros) == FF_STATUS_OK);
    do_outputs();
  } else if (sscanf(line, "background %" SCNu64 " %" SCNu64, &a, &b) == 2) {
    MUST(ff_target_on_background(target, a, b, now_micros) == FF_STATUS_OK);
  } else if (strcmp(line, "allowance\n") == 0) {
    ff_allowance now = { false, 0, 0, 0, 0 };
    MUST(ff_target_background_allowance(target, &now) == FF_STATUS_OK);
    if (!now.is_limited)
      printf("allowance unlimited\n");
    else
      printf("allowance %" PRIu64 " %" PRIu64 "\n", now.receive_bytes, now.send_bytes);
    if (now.is_limited && now.receive_bytes == 0)
      MUST(ff_target_on_background_wait(target) == FF_STATUS_OK);
  } else if (sscanf(line, "exempt %255s", name) == 1) {
    uint8_t address[16];
    int is_v6 = strchr(name, ':') != NULL;
    MUST(inet_pton(is_v6 ? AF_INET6 : AF_INET, name, address) == 1);
    printf("exempt %d\n", ff_target_is_exempt(target, address, is_v6 ? 16 : 4));
  } else if (sscanf(line, "arrive %255s", name) == 1) {
    uint8_t address[4];
    MUST(inet_pton(AF_INET, name, address) == 1);
    printf("arrive %d\n", ff_target_use_exemption(target, address, sizeof(address)));
  } else if (strcmp(line, "totals\n") == 0) {
    ff_totals now;
    MUST(ff_target_totals(target, &now) == FF_STATUS_OK);
    printf("totals %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 "\n", now.granted, now.refused, now.completed, now.failed,
           now.echoed_bytes, now.background_bytes, now.background_waits);
  } else if (strcmp(line, "abort\n") == 0) {
    MUST(ff_target_abort(target, now_micros) == FF_STATUS_OK);
    do_outputs();
  } else if (strcmp(line, "idle\n") == 0) {
    MUST(!ff_target_has_failed(target));
    printf("idle %d\n", ff_target_is_idle(target));
  } else {
    MUST(strcmp(line, "quit\n") == 0);
    return false;
  }
  return true;
}

int
main(int argc, char **argv)
{
  static char line[4096];
  char error[256] = "";
  int is_file = argc > 2 && strcmp(argv[1], "file") == 0;

  check_misuse();
  if (ff_target_new(is_file ? argv[2] : NULL, !is_file && argc > 2 ? argv[2] : NULL,
                    error, sizeof(error), &target)) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  while (fgets(line, sizeof(line), stdin) && do_command(line)) {
    printf("ok\n");
    fflush(stdout);
  }
  for (int i = 0; i < MAX_LINKS; i++)
    close_link(&links[i]);
  ff_target_free(target);
  return 0;
}
