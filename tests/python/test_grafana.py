"""deploy/grafana: what Grafana is given knows its data source by a variable, and is found where the docs put it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/grafana"
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))
}
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}


def test_there_is_one_of_each_kind_under_an_address_that_stays() -> None:
    assert set(DASHBOARDS) == {"cluster", "job", "node", "control"}
    for name, dashboard in DASHBOARDS.items():
        assert dashboard["uid"] == f"imgd-{name}", "links to it go by its uid"
        assert dashboard.get("id") is None, "Grafana gives the number"
    titles = [dashboard["title"] for dashboard in DASHBOARDS.values()]
    assert all(titles) and len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_panel_asks_the_data_source_that_is_chosen_and_says_its_unit(name: str) -> None:
    dashboard = DASHBOARDS[name]
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    for variable in variables.values():
        if variable["type"] == "query":
            assert variable["datasource"] == CHOSEN, variable["name"]
    assert dashboard["panels"]
    for panel in dashboard["panels"]:
        assert panel["datasource"] == CHOSEN, panel["title"]
        assert all(target.get("datasource", CHOSEN) == CHOSEN for target in panel["targets"]), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


SELECTOR = re.compile(
    r"\b(imgd_\w+|process_\w+|scrape_\w+|up)\b(\{[^}]*\})?( and on \(instance\) imgd_build_info\{cluster)?"
)
OF_CLUSTER = 'cluster=~"$cluster"'


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_is_of_the_cluster_that_is_chosen(name: str) -> None:
    """Several may have one Prometheus, and each numbers its jobs from 1."""
    variables = {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}
    assert variables["cluster"]["query"] == "label_values(imgd_build_info, cluster)"
    assert not variables["cluster"]["multi"] and not variables["cluster"]["includeAll"]
    queries = [target["expr"] for panel in DASHBOARDS[name]["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in variables.values() if one["type"] == "query" and one["name"] != "cluster"]
    assert len(queries) > 10
    for query in queries:
        selectors = SELECTOR.findall(query)
        assert selectors, query
        # What Prometheus itself says of imgd has no such label, and is taken by imgd's address.
        assert all(OF_CLUSTER in matchers or by_address for _, matchers, by_address in selectors), query


def test_what_provisions_them_looks_where_the_docs_copy_them_to() -> None:
    (provider,) = yaml.safe_load((FOLDER / "provisioning/dashboards/imgd.yml").read_text())["providers"]
    assert provider["type"] == "file"
    copied_to = f"cp deploy/grafana/dashboards/*.json {provider['options']['path']}/\n"
    assert copied_to in (ROOT / "docs/metrics.md").read_text()
    (source,) = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["uid"].startswith("imgd-")
