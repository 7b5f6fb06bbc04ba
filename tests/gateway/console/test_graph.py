"""Pictures of graphs."""

from gateway.console.graph import NODES, GraphEdge, draw_graph


def test_a_node_is_placed_behind_all_its_predecessors() -> None:
    edges = [GraphEdge("a", "b"), GraphEdge("a", "c"), GraphEdge("b", "c"), GraphEdge("c", "d")]
    picture = draw_graph("a", edges, str.upper)
    places = {one.name: one.x for one in picture.boxes}
    assert places["a"] < places["b"] < places["c"] < places["d"]
    assert {one.url for one in picture.boxes} == set("ABCD")
    assert len(picture.lines) == 4
    assert (draw_graph("x", [], str).left_out, len(draw_graph("x", [], str).boxes)) == (0, 1)


def test_cycles_and_large_graphs_end() -> None:
    around = [GraphEdge("a", "b"), GraphEdge("b", "a"), GraphEdge("b", "b")]
    assert {one.name for one in draw_graph("a", around, str).boxes} == {"a", "b"}
    many = [GraphEdge("a", f"n{at}" * 20) for at in range(500)]
    picture = draw_graph("a", many, str)
    assert (len(picture.boxes), picture.left_out) == (NODES, 501 - NODES)
