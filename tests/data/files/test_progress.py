from trellisnet.data.files.progress import progress


def work():
    with progress("working hard", total=10, unit="things") as bar:
        bar.add(3)
        bar.restart()
        bar.set_total(20)
        bar.add(20)


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    work()
    out, err = capsys.readouterr()
    assert out == ""
    assert "working hard" in err
    assert "20/20" in err


def test_nothing_elsewhere(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    work()
    assert capsys.readouterr() == ("", "")
