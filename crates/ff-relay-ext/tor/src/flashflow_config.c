/**
 * @file flashflow_config.c
 * @brief The FlashFlow target as a subsystem of tor, and its options.
 **/

#include "core/or/or.h"

#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/nodelist/networkstatus.h"
#include "lib/conf/confdecl.h"
#include "lib/conf/conftypes.h"
#include "lib/encoding/confline.h"
#include "lib/subsys/subsys.h"

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
    list->coordinators = flashflow_join_values(options->FFAllowedCoordinators, " ");
    add_option(list, "FFAllowedCoordinators", list->coordinators);
  }
}

/** Frees what <b>list</b> points to. */
void
flashflow_option_list_clear(flashflow_option_list_t *list)
{
  tor_free(list->coordinators);
  list->count = 0;
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
  if (status == FF_STATUS_OK)
    return 0;
  *msg = tor_strdup(error[0] ? error : ff_status_text(status));
  return -1;
}

/** Takes new options. */
static int
set_options(void *arg)
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
  .set_options = set_options,
  .state_format = &flashflow_state_fmt,
  .set_state = flashflow_set_state,
  .get_metrics = flashflow_get_metrics,
};
