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

/** Says whether an option belongs to the limit where clients enter. */
static bool
is_ingress_option(const config_var_t *var)
{
  return strcmpstart(var->member.name, "FFIngress") == 0;
}

/** Adds to <b>list</b> all options that belong to the limit where clients enter, or all others, as far as
 * they are set. */
static void
add_options(const flashflow_options_t *options, bool is_ingress, flashflow_option_list_t *list)
{
  for (const config_var_t *var = flashflow_options_t_vars; var->member.name; ++var) {
    const void *field = STRUCT_VAR_P(options, var->member.offset);
    if (is_ingress_option(var) != is_ingress)
      continue;
    if (var->member.type_def == &STRING_type_defn) {
      add_option(list, var->member.name, *(char *const *) field);
    } else if (var->member.type_def == &LINELIST_type_defn && *(config_line_t *const *) field) {
      list->values = flashflow_join_values(*(config_line_t *const *) field, " ");
      add_option(list, var->member.name, list->values);
    }
  }
}

/** Makes the library's list of <b>options</b>. */
static void
list_options(const flashflow_options_t *options, flashflow_option_list_t *list)
{
  memset(list, 0, sizeof(*list));
  /* The bounds of others hang on it. */
  add_option(list, "TestingTorNetwork", options->___FFTestingNetwork ? "1" : NULL);
  add_options(options, false, list);
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
  add_options(options, true, list);
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

/** Adds a parameter of <b>ns</b> to <b>list</b>, if it is there. */
static void
add_param(flashflow_param_list_t *list, const networkstatus_t *ns, const char *name)
{
  int32_t value = networkstatus_get_param(ns, name, INT32_MIN, INT32_MIN, INT32_MAX);
  if (value == INT32_MIN || list->count == FLASHFLOW_MAX_PARAMS)
    return;
  list->param[list->count].name = name;
  list->param[list->count++].value = value;
}

/** Makes the library's list of the parameters of <b>ns</b> that have the names of our options: of those that
 * belong to the limit where clients enter, or of the others. */
void
flashflow_get_params(const networkstatus_t *ns, bool is_ingress, flashflow_param_list_t *list)
{
  list->count = 0;
  for (const config_var_t *var = flashflow_options_t_vars; var->member.name; ++var) {
    /* Parameters are numbers, and so stand for no list. */
    if (is_ingress_option(var) == is_ingress && var->member.type_def == &STRING_type_defn)
      add_param(list, ns, var->member.name);
  }
  if (is_ingress) {
    add_param(list, ns, "perconnbwrate");
    add_param(list, ns, "perconnbwburst");
  }
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
