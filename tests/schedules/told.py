"""A function for process slots. A slot imports this module under the same name as the tests do."""

from mainspring import Context


def tell(ctx: Context) -> list[str]:
    """Say what a handler is told of its slot."""
    return [
        f"{ctx.schedule}",
        f"{ctx.slot:%H:%M}" if ctx.slot else "none",
        f"{ctx.lateness.total_seconds():.0f}",
        ctx.zone,
        f"{ctx.is_catch_up}",
    ]


async def tell_async(ctx: Context) -> list[str]:
    return tell(ctx)
