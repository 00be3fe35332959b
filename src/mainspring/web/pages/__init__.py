"""The pages of the dashboard.

A new page is:

1. a row in `ALL` below: where it is, which route of the JSON API gathers its record, its template;
2. the template, in `web/templates/`. It begins with `{% extends "layout.html" %}` and puts itself into the block `main`.
   It is given `record` (what the handler returns, as `--json` writes it), `said` (what was asked for), `query`, `now`,
   `who` and `may("jobs.retry")`; `macros.html` has what pages share, under the name `ui`: states, times, buttons, bars,
   empty states, and `ui.ref` for a way to a page that may not be there.

What is to stay up to date stands in a block of its own, which the row names in `parts`, inside of
`{% call ui.live("rows", query) %}`: `?part=rows` answers with that block alone, and every tick asks for it. So a block
takes all that it shows from what every template is given. A button is `ui.act("jobs.retry", {"id": …}, "Retry",
may=may("jobs.retry"))`: it posts to `do/jobs.retry`, which is the route of that name; what is said when that worked stands
in `web.forms.DONE`. Lists that can be walked with keys have `data-rows` on the table and `data-row` on the link of each row.
With `confirm="…?"` one is asked first, and with `reason=true` for a reason, too. What else an action needs to be told is
asked for in a dialog, which stands outside of what is live: `{% call ui.dialog("limit", "queues.limit", "Limit a queue",
"Set") %}` around its fields, and `ui.opens("limit", {"name": …}, "Limit", may=may("queues.limit"))` for the button. What an
action answers is shown in place of a toast if it stands in `web.forms.SHOWN`.
All addresses are relative and one word long, so that it works under any prefix.
"""

from typing import Final

from mainspring.web.pages.page import Page

ALL: Final[tuple[Page, ...]] = (
    Page(
        path="",
        title="Overview",
        gathers="overview",
        template="overview.html",
        parts=("now", "rates", "details"),
        icon="overview",
        key="o",
    ),
    Page(
        path="jobs",
        title="Jobs",
        gathers="jobs.list",
        template="jobs.html",
        parts=("rows",),
        icon="jobs",
        key="j",
        has_search=True,
    ),
    Page(path="job", title="Job", gathers="jobs.show", template="job.html", parts=("job",)),
    Page(
        path="queues",
        title="Queues",
        gathers="queues.look",
        template="queues.html",
        parts=("queues",),
        icon="queues",
        key="q",
    ),
    Page(
        path="schedules",
        title="Schedules",
        gathers="schedules.list",
        template="schedules.html",
        parts=("rows",),
        icon="schedules",
        key="s",
        says={"runs": "20", "limit": "50"},
        has_search=True,
    ),
    Page(path="schedule", title="Schedule", gathers="schedules.show", template="schedule.html", parts=("schedule",)),
    Page(
        path="nodes",
        title="Nodes",
        gathers="nodes.list",
        template="nodes.html",
        parts=("nodes",),
        icon="nodes",
        key="n",
    ),
    Page(path="node", title="Node", gathers="nodes.show", template="node.html", parts=("state", "details")),
    Page(
        path="services",
        title="Services",
        gathers="services.list",
        template="services.html",
        parts=("services",),
        icon="services",
        key="v",
    ),
    Page(
        path="outboxes",
        title="Outboxes",
        gathers="outboxes.list",
        template="outboxes.html",
        parts=("rows",),
        icon="outboxes",
        key="u",
    ),
    Page(
        path="letters",
        title="Dead letters",
        gathers="outboxes.letters",
        template="letters.html",
        parts=("rows",),
        within="outboxes",
        has_search=True,
    ),
    Page(
        path="breakers",
        title="Breakers",
        gathers="breakers.list",
        template="breakers.html",
        parts=("rows",),
        icon="breakers",
        key="b",
        says={"changes": "10"},
    ),
    Page(path="plugins", title="Plugins", gathers="plugins.list", template="plugins.html", icon="plugins", key="p"),
    Page(
        path="audit",
        title="Audit",
        gathers="audit.list",
        template="audit.html",
        parts=("rows",),
        icon="audit",
        key="a",
        has_search=True,
    ),
)
