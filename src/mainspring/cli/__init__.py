"""The command line: `mainspring --help` tells what there is. One file a command group."""

import click

from mainspring.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mainspring")
def main() -> None:
    """Background work that must not be lost."""


main.add_command(demo)
