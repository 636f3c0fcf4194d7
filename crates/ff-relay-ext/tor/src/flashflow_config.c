/**
 * @file flashflow_config.c
 * @brief The FlashFlow target as a subsystem of tor, and its options.
 **/

#include "core/or/or.h"

#include "app/config/config.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/nodelist/networkstatus.h"
#include "lib/conf/confdecl.h"
#include "lib/conf/conftypes.h"
#include "lib/encoding/confline.h"
#include "lib/subsys/subsys.h"

#include "app/config/or_options_st.h"

#define CONF_CONTEXT STRUCT
#include "feature/flashflow/flashflow_options.inc"
#undef CONF_CONTEXT
typedef struct flashflow_options_t flashflow_options_t;

#define CONF_CONTEXT TABLE
#include "feature/flashflow/flashflow_options.inc"
#undef CONF_CONTEXT

#define FLASHFLOW_OPTIONS_MAGIC 0x46464f50

/** After what it looks at, and where the hook puts it in the list. */
#define FLASHFLOW_SUBSYS_LEVEL 53

/** The options in force; NULL before there are any. */
static const flashflow_options_t *current_options;
/** The options whose validation has passed, until that of tor's own, which comes next. */
static const flashflow_options_t *validated_options;

/** Joins the values of <b>lines</b>, each followed by <b>end</b>. */
char *
flashflow_join_values(const config_line_t *lines, const char *end)
{
  smartlist_t *values = smartlist_new();
  for (; lines; lines = lines->next)
    smartlist_add_asprintf(values, "%s%s", lines->value, end);
  char *text = smartlist_join_strings(values, "", 0, NULL);
  SMARTLIST_FOREACH(values, char *, value, tor_free(value));
  smartlist_free(values);
  return text;
}

/** Adds an option to <b>list</b>, if it is set. */
static void
add_option(flashflow_option_list_t *list, const char *name, const char *value)
{
  if (value && list->count < FLASHFLOW_MAX_OPTIONS) {
    list->option[list->count].name = name;
    list->option[list->count].value = value;
    ++list->count;
  }
}

/** Makes the library's list of <b>options</b>. */
static void
list_options(const flashflow_options_t *options, flashflow_option_list_t *list)
{
  memset(list, 0, sizeof(*list));
  /* The bounds of others hang on it. */
  add_option(list, "TestingTorNetwork", options->___FFTestingNetwork ? "1" : NULL);
  add_option(list, "FFMeasurementsAllowed", options->FFMeasurementsAllowed);
  add_option(list, "FFMeasurementPeriod", options->FFMeasurementPeriod);
  add_option(list, "FFBackgroundTrafficPercent",
             options->FFBackgroundTrafficPercent);
  add_option(list, "FFMaxMeasurementDuration",
             options->FFMaxMeasurementDuration);
  add_option(list, "FFMaxMeasurementSockets",
             options->FFMaxMeasurementSockets);
  if (options->FFAllowedCoordinators) {
    list->values = flashflow_join_values(options->FFAllowedCoordinators, " ");
    add_option(list, "FFAllowedCoordinators", list->values);
  }
}

/** Adds a number of bytes to <b>list</b>, as <b>text</b>, if it is set. */
static void
add_bytes(flashflow_option_list_t *list, const char *name, uint64_t bytes, char *text, size_t len)
{
  if (!bytes)
    return;
  tor_snprintf(text, len, "%"PRIu64, bytes);
  add_option(list, name, text);
}

/** Makes the library's list of the options of the limit where clients enter, among them those of
 * <b>relay</b>, unless that is NULL. */
static void
list_ingress_options(const flashflow_options_t *options, const or_options_t *relay,
                     flashflow_option_list_t *list)
{
  memset(list, 0, sizeof(*list));
  add_option(list, "FFIngressLimit", options->FFIngressLimit);
  add_option(list, "FFIngressExempt", options->FFIngressExempt);
  add_option(list, "FFIngressShare", options->FFIngressShare);
  if (options->FFIngressExemptAddress) {
    list->values = flashflow_join_values(options->FFIngressExemptAddress, " ");
    add_option(list, "FFIngressExemptAddress", list->values);
  }
  if (relay) {
    add_bytes(list, "PerConnBWRate", relay->PerConnBWRate, list->rate, sizeof(list->rate));
    add_bytes(list, "PerConnBWBurst", relay->PerConnBWBurst, list->burst, sizeof(list->burst));
  }
}

/** Frees what <b>list</b> points to. */
void
flashflow_option_list_clear(flashflow_option_list_t *list)
{
  tor_free(list->values);
  list->count = 0;
}

/** Makes the library's list of the options of the limit where clients enter that are in force. */
void
flashflow_get_ingress_options(flashflow_option_list_t *list)
{
  if (current_options)
    list_ingress_options(current_options, get_options(), list);
  else
    memset(list, 0, sizeof(*list));
}

/** Makes the library's list of the options in force. */
void
flashflow_get_options(flashflow_option_list_t *list)
{
  if (current_options)
    list_options(current_options, list);
  else
    memset(list, 0, sizeof(*list));
}

/** Says whether this relay takes part in measurements at all. */
bool
flashflow_is_allowed(void)
{
  if (!current_options)
    return false;
  if (current_options->FFMeasurementsAllowed)
    return !strcmp(current_options->FFMeasurementsAllowed, "1");
  return networkstatus_get_param(NULL, "FFMeasurementsAllowed", 0, 0, 1) == 1;
}

/** Puts what is wrong into <b>msg</b>, if anything: a call of the library's had this <b>status</b> and
 * <b>error</b>. Returns -1 then. */
static int
report(ff_status status, const char *error, char **msg)
{
  if (status == FF_STATUS_OK)
    return 0;
  *msg = tor_strdup(error[0] ? error : ff_status_text(status));
  return -1;
}

/** Says what is wrong with the options of the limit where clients enter, if anything. */
static int
validate_ingress(const flashflow_options_t *options, const or_options_t *relay, char **msg)
{
  flashflow_option_list_t list;
  char error[256] = "";
  list_ingress_options(options, relay, &list);
  ff_status status =
    ff_ingress_check(list.option, list.count, relay != NULL, error, sizeof(error));
  flashflow_option_list_clear(&list);
  return report(status, error, msg);
}

/** Says what is wrong with the options, if anything. */
static int
validate_options(const void *arg, char **msg)
{
  flashflow_option_list_t list;
  char error[256] = "";
  list_options(arg, &list);
  ff_status status =
    ff_options_check(list.option, list.count, error, sizeof(error));
  flashflow_option_list_clear(&list);
  if (report(status, error, msg) < 0 || validate_ingress(arg, NULL, msg) < 0)
    return -1;
  validated_options = arg;
  return 0;
}

/** Says what is wrong with those of tor's own <b>options</b> that ours hang on, if anything. tor
 * validates them right after ours. */
int
flashflow_check_relay(const or_options_t *options, char **msg)
{
  const flashflow_options_t *ours = validated_options;
  validated_options = NULL;
  return ours ? validate_ingress(ours, options, msg) : 0;
}

/** Takes new options. */
static int
take_options(void *arg)
{
  current_options = arg;
  flashflow_options_changed();
  return 0;
}

/** Forgets all. */
static void
shut_down(void)
{
  flashflow_stop();
  flashflow_forget_state();
  current_options = NULL;
}

static const config_format_t flashflow_options_fmt = {
  .size = sizeof(flashflow_options_t),
  .magic = { "flashflow_options_t", FLASHFLOW_OPTIONS_MAGIC,
             offsetof(flashflow_options_t, magic) },
  .vars = flashflow_options_t_vars,
  .validate_fn = validate_options,
};

const struct subsys_fns_t sys_flashflow = {
  SUBSYS_DECLARE_LOCATION(),
  .name = "flashflow",
  .supported = true,
  .level = FLASHFLOW_SUBSYS_LEVEL,
  .shutdown = shut_down,
  .options_format = &flashflow_options_fmt,
  .set_options = take_options,
  .state_format = &flashflow_state_fmt,
  .set_state = flashflow_set_state,
  .get_metrics = flashflow_get_metrics,
};
